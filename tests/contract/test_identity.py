"""What of a spec is in the keys of its rows."""

from dataclasses import dataclass, field, fields, replace

from tests.builders import latent
from variants.contract.identity import ADDED, identity_of

NEW = {"latent_norm", "qkv_bias", "output_bias"}


@dataclass(frozen=True)
class Inner:
    size: int = 3


@dataclass(frozen=True)
class Outer:
    inner: Inner
    old: bool = False
    new: bool = field(default=False, metadata=ADDED)


def test_a_field_that_came_later_is_in_no_key_until_it_says_something() -> None:
    assert identity_of(Outer(Inner())) == {"inner": {"size": 3}, "old": False}
    assert identity_of(Outer(Inner(), new=True)) == {"inner": {"size": 3}, "old": False, "new": True}


def test_rows_of_latent_attention_from_before_conversions_keep_their_keys() -> None:
    spec = latent()
    assert set(identity_of(spec)) == {f.name for f in fields(spec)} - NEW
    assert set(identity_of(replace(spec, output_bias=True))) == {f.name for f in fields(spec)} - NEW | {"output_bias"}
