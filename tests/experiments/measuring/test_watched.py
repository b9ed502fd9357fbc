"""A look into one call: the operators that ran, what was allocated, and that nothing of it is left behind."""

import pytest
import torch
import torch.nn.functional as F

from experiments.measuring.watched import watch
from tests.experiments.builders import device


def test_operators_are_named_and_every_byte_that_was_asked_for_counts() -> None:
    x = torch.zeros(1, 64, 1024)

    def call() -> None:
        x.repeat_interleave(4, dim=1)  # freed again before the call ends

    seen = watch(call, device())
    assert "aten::repeat_interleave" in seen.names
    assert 4 * x.nbytes <= seen.allocated < 5 * x.nbytes


def test_a_call_that_allocates_nothing_says_so() -> None:
    x = torch.ones(16)
    seen = watch(x.neg_, device())
    assert "aten::neg_" in seen.names
    assert seen.allocated == 0
    assert (x == -1).all()  # it was called once


def test_which_kernel_served_an_attention_of_torchs_shows() -> None:
    q, k = torch.zeros(1, 2, 1, 16), torch.zeros(1, 2, 8, 16)
    names = watch(lambda: F.scaled_dot_product_attention(q, k, k), device()).names
    assert any(name.startswith("aten::_scaled_dot_product_") for name in names)


def test_an_error_of_the_call_is_the_callers_and_the_next_look_works(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise RuntimeError("late")

    with pytest.raises(RuntimeError, match="late"):
        watch(fail, device())
    assert "aten::ones" in watch(lambda: torch.ones(2), device()).names
    assert capfd.readouterr() == ("", "")


class Card:
    """torch.profiler and torch's CUDA allocator as far as a look uses them: one operator that launches one kernel."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 1000
        card = self

        class Kind:
            def __init__(self, name: str) -> None:
                self.name = name

        class Event:
            def __init__(self, name: str, kind: str) -> None:
                self.name, self.device_type = name, Kind(kind)

        class Profile:
            def __init__(self, activities: object) -> None:
                self.activities = activities

            def __enter__(self) -> "Profile":
                return self

            def __exit__(self, *error: object) -> None:
                pass

            def events(self) -> list[Event]:
                return [Event("aten::empty", "CPU"), Event("split", "CUDA")]

        monkeypatch.setattr(torch.profiler, "profile", Profile)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(torch.cuda, "memory_stats", lambda: {"allocated_bytes.all.allocated": card.asked})

    def call(self) -> None:
        """Allocates."""
        self.asked += 512


def test_on_a_gpu_kernels_are_told_from_operators_and_its_own_allocator_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch)
    seen = watch(card.call, device(kind="cuda"))
    assert seen.names == {"aten::empty", "kernel:split"}
    assert seen.allocated == 512
