"""What the kernel loads for a geometry: a state, a tail and a value, each one span. Plain Python."""

from dataclasses import dataclass

from variants.contract.geometry import AttentionGeometry, Span

LEAST = 16  # columns of a matrix instruction's inner dimension


def block(width: int) -> int:
    """Columns of the tile that holds ``width``: the next power of two, at least 16."""
    return max(LEAST, 1 << (width - 1).bit_length())


@dataclass(frozen=True)
class Reading:
    """Key = some columns of ``state`` + all of ``tail``; value = some columns of ``value`` (None: of the state).

    ``q_state`` and ``q_tail`` are the columns of q that meet them.
    """

    state: Span
    key: Span
    q_state: int
    tail: Span | None
    q_tail: int
    output: Span
    value: Span | None

    @property
    def spans(self) -> tuple[Span, ...]:
        """All that are loaded."""
        return tuple(span for span in (self.state, self.tail, self.value) if span is not None)

    @property
    def key_at(self) -> int:
        """First column of the state that is key."""
        return self.key.start - self.state.start

    @property
    def value_at(self) -> int:
        """First column of the value tile that is output."""
        return self.output.start - (self.value or self.state).start

    @property
    def state_block(self) -> int:
        """Columns of the state tile."""
        return block(self.state.width)

    @property
    def tail_block(self) -> int:
        """Columns of the tail tile; 0 if there is none."""
        return block(self.tail.width) if self.tail else 0

    @property
    def value_block(self) -> int:
        """Columns of the output tile."""
        return block((self.value or self.state).width)

    @property
    def loaded(self) -> int:
        """Columns loaded per token."""
        return self.state_block + self.tail_block + (self.value_block if self.value else 0)


def reading(geometry: AttentionGeometry) -> Reading | None:
    """How the kernel reads a geometry; None where it takes more than two key spans or one value span."""
    keys = _cut(geometry)
    if len(keys) > 2 or len(geometry.value) > 1:
        return None
    output = geometry.value[0]
    at = [sum(key.width for key in keys[:i]) for i in range(len(keys))]
    main = max(range(len(keys)), key=lambda i: (_overlap(keys[i], output), keys[i].width))
    rest = 1 - main if len(keys) == 2 else None
    key, tied = keys[main], _overlap(keys[main], output) > 0
    state = Span(key.stream, min(key.start, output.start), max(key.stop, output.stop)) if tied else key
    return Reading(
        state=state,
        key=key,
        q_state=at[main],
        tail=None if rest is None else keys[rest],
        q_tail=0 if rest is None else at[rest],
        output=output,
        value=None if tied else output,
    )


def _cut(geometry: AttentionGeometry) -> tuple[Span, ...]:
    """A lone key of, say, 192 or 576 columns as 128 + 64 or 512 + 64: two tiles without padding.

    Not where the value reaches beyond the cut: those columns would be loaded twice.
    """
    if len(geometry.key) > 1:
        return geometry.key
    key, value = geometry.key[0], geometry.value[0]
    half = block(key.width) // 2
    middle = key.start + half
    if block(key.width) == key.width or half < LEAST or (_overlap(key, value) and value.stop > middle):
        return geometry.key
    return Span(key.stream, key.start, middle), Span(key.stream, middle, key.stop)


def _overlap(a: Span, b: Span) -> int:
    return max(0, min(a.stop, b.stop) - max(a.start, b.start)) if a.stream == b.stream else 0
