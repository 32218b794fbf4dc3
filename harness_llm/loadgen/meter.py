"""Counts and latencies of a run in progress, measured in LoadGen's process."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from harness_llm.protocol.messages import Answer

WINDOW = 2048


class Meter:
    """Totals, and TTFT and TPOT over the last `WINDOW` queries; times in seconds."""

    def __init__(self) -> None:
        self.issued = 0
        self.done = 0
        self.tokens = 0
        self._issued_at: dict[int, float] = {}
        self._first_at: dict[int, float] = {}
        self._ttft: deque[float] = deque(maxlen=WINDOW)
        self._tpot: deque[float] = deque(maxlen=WINDOW)

    def issue(self, queries: Sequence[int], now: float, *, stream: bool) -> None:
        """Count issued queries."""
        self.issued += len(queries)
        if stream:
            self._issued_at.update(dict.fromkeys(queries, now))

    def first(self, answers: Sequence[Answer], now: float) -> None:
        """Record the time of first tokens."""
        for answer in answers:
            self._ttft.append(now - self._issued_at.pop(answer.query))
            self._first_at[answer.query] = now

    def finish(self, answers: Sequence[Answer], now: float) -> None:
        """Count finished answers."""
        self.done += len(answers)
        for answer in answers:
            self.tokens += len(answer.ids)
            first = self._first_at.pop(answer.query, None)
            if first is not None and len(answer.ids) > 1:
                self._tpot.append((now - first) / (len(answer.ids) - 1))

    def snapshot(self) -> dict[str, Any]:
        """Return the totals, and p50 and p99 in ms, ranked as LoadGen does, if there are first tokens."""
        figures: dict[str, Any] = {"issued": self.issued, "done": self.done, "tokens": self.tokens}
        for name, window in (("ttft_ms", self._ttft), ("tpot_ms", self._tpot)):
            if window:
                ranked = sorted(window)
                figures[name] = [round(ranked[len(ranked) * percent // 100] * 1000, 2) for percent in (50, 99)]
        return figures
