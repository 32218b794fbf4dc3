"""Counts and latencies of a running run, as the LoadGen process sees them."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from harness_llm.protocol.messages import Answer

WINDOW = 2048


class Meter:
    """Totals, and TTFT and TPOT over the last `WINDOW` queries; times in seconds."""

    def __init__(self) -> None:
        """Start at zero."""
        self.issued = 0
        self.done = 0
        self.tokens = 0
        self._issued_at: dict[int, float] = {}
        self._first_at: dict[int, float] = {}
        self._ttft: deque[float] = deque(maxlen=WINDOW)
        self._tpot: deque[float] = deque(maxlen=WINDOW)

    def issue(self, queries: Sequence[int], now: float, *, stream: bool) -> None:
        """Queries have been issued."""
        self.issued += len(queries)
        if stream:
            self._issued_at.update(dict.fromkeys(queries, now))

    def first(self, answers: Sequence[Answer], now: float) -> None:
        """First tokens have come."""
        for answer in answers:
            self._ttft.append(now - self._issued_at.pop(answer.query))
            self._first_at[answer.query] = now

    def finish(self, answers: Sequence[Answer], now: float) -> None:
        """Whole answers have come."""
        self.done += len(answers)
        for answer in answers:
            self.tokens += len(answer.ids)
            first = self._first_at.pop(answer.query, None)
            if first is not None and len(answer.ids) > 1:
                self._tpot.append((now - first) / (len(answer.ids) - 1))

    def snapshot(self) -> dict[str, Any]:
        """Totals, and p50 and p99 in milliseconds, ranked as LoadGen does, where there are first tokens."""
        figures: dict[str, Any] = {"issued": self.issued, "done": self.done, "tokens": self.tokens}
        for name, window in (("ttft_ms", self._ttft), ("tpot_ms", self._tpot)):
            if window:
                ranked = sorted(window)
                figures[name] = [round(ranked[len(ranked) * percent // 100] * 1000, 2) for percent in (50, 99)]
        return figures
