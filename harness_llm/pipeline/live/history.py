"""A value over time in a fixed number of bins, and its sparkline. Pure."""

import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-:=+*#"  # for terminals without Unicode


class History:
    """Means of a value in bins of equal duration; when all bins are full, the duration doubles."""

    def __init__(self, bins: int = 256, seconds: float = 1.0) -> None:
        """Create `bins` empty bins, an even number, of `seconds` each."""
        self._seconds = seconds
        self._sums, self._counts = [0.0] * bins, [0] * bins

    def add(self, at_s: float, value: float) -> None:
        """Add a value at `at_s` seconds since the start."""
        while at_s >= self._seconds * len(self._sums):
            self._double()
        place = max(int(at_s / self._seconds), 0)
        self._sums[place] += value
        self._counts[place] += 1

    def _double(self) -> None:
        self._seconds *= 2
        half = len(self._sums) // 2
        self._sums = [sum(self._sums[i : i + 2]) for i in range(0, 2 * half, 2)] + [0.0] * half
        self._counts = [sum(self._counts[i : i + 2]) for i in range(0, 2 * half, 2)] + [0] * half

    def means(self, points: int) -> list[float]:
        """Return at most `points` means from the first to the last value, in order of time.

        A bin without a value repeats the one before.
        """
        last = max((place for place, count in enumerate(self._counts) if count), default=-1)
        size = max(math.ceil((last + 1) / max(points, 1)), 1)
        means: list[float] = []
        for begin in range(0, last + 1, size):
            count = sum(self._counts[begin : begin + size])
            means.append(sum(self._sums[begin : begin + size]) / count if count else (means or [0.0])[-1])
        return means


def sparkline(values: Sequence[float], *, ascii_only: bool = False) -> str:
    """Return one character per value; the highest is that of the greatest value, the lowest that of 0."""
    blocks, greatest = ASCII_BLOCKS if ascii_only else BLOCKS, max(values, default=0.0)
    if greatest <= 0:
        return blocks[0] * len(values)
    highest = len(blocks) - 1
    return "".join(blocks[round(max(value, 0.0) / greatest * highest)] for value in values)
