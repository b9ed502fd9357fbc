"""The ceilings of a run: measured by whichever worker comes first, and the same for every row.

They are plain numbers, so the run keeps them and no worker needs to know them. A row above its ceiling has it measured
once more, before anyone calls the row a lie; the higher one then holds for all rows that follow.
"""

from experiments.measuring.ceilings import Ceilings
from experiments.measuring.messages import Failed, Hand, MeasureMatmul, MeasureRead, Rate
from experiments.measuring.row import Where
from variants.contract.dtype import Dtype

Key = tuple[str, str, int]  # device, clock, threads: what a ceiling depends on


class Roofs:
    """Read and matmul ceilings by device, clock and number of threads."""

    def __init__(self) -> None:
        self._read: dict[Key, Ceilings] = {}
        self._matmul: dict[tuple[Key, Dtype], float] = {}

    def find(self, where: Where, hand: Hand) -> Failed | None:
        """Have what a row needs measured, unless it is known; ``Failed`` if that cannot be."""
        if _key(where) not in self._read:
            found = hand.ask(MeasureRead())
            if isinstance(found, Failed):
                return found
            assert isinstance(found, Ceilings), found
            self._read[_key(where)] = found
        if (_key(where), where.point.dtype) not in self._matmul:
            rate = hand.ask(MeasureMatmul(where.point.dtype))
            if isinstance(rate, Failed):
                return rate
            assert isinstance(rate, Rate), rate
            self._matmul[_key(where), where.point.dtype] = rate.tflops
        return None

    def read(self, where: Where) -> Ceilings:
        """GB/s; ``find`` has been asked before."""
        return self._read[_key(where)]

    def matmul(self, where: Where) -> float:
        """TFLOP/s; ``find`` has been asked before."""
        return self._matmul[_key(where), where.point.dtype]

    def again(self, where: Where, hand: Hand) -> tuple[Ceilings, Ceilings] | None:
        """Measure the read ceilings once more: those that held so far and the new ones; None if that failed.

        From now on the higher of both holds: other load on the machine can only make them too low.
        """
        before, found = self.read(where), hand.ask(MeasureRead(again=True))
        if not isinstance(found, Ceilings):
            return None
        self._read[_key(where)] = before.best_of(found)
        return before, found


def _key(where: Where) -> Key:
    assert where.device is not None
    return where.device.kind, where.series.timer.kind, where.threads
