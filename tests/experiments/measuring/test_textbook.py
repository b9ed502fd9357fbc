"""What is known of a prompt: as the layer in float32 makes it, made once, and never taken for another part's."""

import pytest
import torch

from experiments.measuring import textbook
from experiments.measuring.series import Series
from experiments.measuring.textbook import Textbook
from tests.experiments.builders import rows_of, series
from variants.attention.grouped.module import GroupedAttention
from variants.protocols import Attention

PROMPT = torch.randn(1, 12, 256, generator=torch.Generator().manual_seed(0)).bfloat16()


@pytest.fixture
def layer() -> Attention:
    made: Series = series("gqa", "eager", dtype="bf16")
    torch.manual_seed(1)
    built = made.spec.build()
    assert isinstance(built, torch.nn.Module)
    return built.bfloat16().requires_grad_(False)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[Attention]:
    """Of the weights, as they are made."""
    made: list[Attention] = []
    copy = textbook.in_float32

    def counted(attention: Attention) -> Attention:
        made.append(copy(attention))
        return made[-1]

    monkeypatch.setattr(textbook, "in_float32", counted)
    return made


def test_outputs_are_those_of_float32_and_made_once(layer: Attention, copies: list[Attention]) -> None:
    book = Textbook()
    x = PROMPT[..., : layer.spec.hidden_size]
    for _ in range(3):
        y = book.outputs(layer, x)
    assert y.dtype == torch.float32
    assert len(copies) == 1
    assert torch.equal(y, copies[0].reference(x.float()))
    assert not torch.equal(y, layer.reference(x).float())
    assert torch.equal(book.outputs(layer, x[:, :5]), copies[0].reference(x[:, :5].float()))


def test_entries_are_known_by_where_they_stand(layer: Attention, copies: list[Attention]) -> None:
    book = Textbook()
    x = PROMPT[:, :4, : layer.spec.hidden_size]
    first, later = torch.arange(4)[None], torch.arange(8, 12)[None]
    for position in (first, later, first):
        found = book.entries(layer, x, position)
        expected = copies[0].entry(x.float(), position)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert len(copies) == 2


def test_what_a_later_point_gets_wrong_is_wrong_though_the_first_was_right(monkeypatch: pytest.MonkeyPatch) -> None:
    right = GroupedAttention.output

    def output(self: GroupedAttention, o: torch.Tensor) -> torch.Tensor:
        y = right(self, o)
        return y * 1.5 if y.shape[1] > 256 else y

    monkeypatch.setattr(GroupedAttention, "output", output)
    made = series("gqa", "eager", scopes=["recompute"], context=[256, 300])
    assert [(row.context, row.status) for row in rows_of(made, monkeypatch)] == [(256, "ok"), (300, "wrong")]
