"""Counts and mixes of lengths as people write them: ``8k``, ``2k:3,32k:1``."""

import re
from collections.abc import Sequence

from variants.contract.tokens import format_tokens, parse_tokens

MOST = 2**40  # of whatever is counted: beyond it nothing is a length, a page or a number of devices


def parse_count(value: str, name: str) -> int:
    """A count as ``parse_tokens`` reads it, of at most ``MOST``; ValueError naming ``name``."""
    count = parse_tokens(value, name)
    if count > MOST:
        raise ValueError(f"{name} must be at most {MOST}; got {value:.40}")
    return count


def parse_mix(items: Sequence[str]) -> dict[int, int]:
    """``2k:3``, ``32k:1``: three sequences of 2048 tokens to one of 32768; ValueError for what is no such share."""
    found: dict[int, int] = {}
    for item in items:
        tokens, colon, share = item.partition(":")
        if not colon or not re.fullmatch(r"[1-9][0-9]{0,8}", share):
            raise ValueError(f"mix must be tokens:share with a whole share >= 1, e.g. '[2k:3,32k:1]'; got {item!r}")
        length = parse_count(tokens, "mix")
        if length in found:
            raise ValueError(f"mix must name each length once; got {tokens!r} again")
        found[length] = int(share)
    return found


def format_mix(contexts: dict[int, int]) -> str:
    """One length as its tokens, several as ``2k:3 32k:1``."""
    if len(contexts) == 1:
        return str(next(iter(contexts)))
    return " ".join(f"{format_tokens(tokens)}:{share}" for tokens, share in contexts.items())
