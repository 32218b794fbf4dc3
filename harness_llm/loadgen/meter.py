"""Counts and latencies of a run in progress, measured in LoadGen's process."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np

from harness_llm.protocol.messages import Answer

WINDOW = 2048
_MS = 1000


@dataclass
class Latencies:
    """Latencies of one kind in seconds: the last `WINDOW`, and how many of all are not below the limit.

    Attributes:
        new: since the last snapshot; between two snapshots, latencies are only appended.
    """

    limit_ms: float | None = None
    new: list[float] = field(default_factory=list)
    count: int = 0
    over: int = 0
    _window: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def snapshot(self, late: int = 0) -> dict[str, Any]:
        """Return p50 and p99 in ms, ranked as LoadGen does, and counts; empty without latencies.

        Args:
            late: queries without this latency that already wait for longer than the limit.
        """
        if self.new:
            self.count += len(self.new)
            if self.limit_ms is not None:
                self.over += int(np.count_nonzero(np.array(self.new) * _MS >= self.limit_ms))
            self._window.extend(self.new)
            self.new.clear()
        if not self._window:
            return {}
        ranks = [len(self._window) * percent // 100 for percent in (50, 99)]
        partitioned = np.partition(np.array(self._window), ranks)
        p50, p99 = (round(float(partitioned[rank]) * _MS, 2) for rank in ranks)
        return {"p50_ms": p50, "p99_ms": p99, "count": self.count + late, "over": self.over + late}


class Meter:
    """Totals, and TTFT and TPOT; times in seconds."""

    def __init__(self, limits_ms: Mapping[str, float] | None = None) -> None:
        """Create a meter; `limits_ms` are the p99 limits of `ttft` and `tpot`, if there are any."""
        limits = limits_ms or {}
        self.issued = 0
        self.done = 0
        self.tokens = 0
        self._issued_at: dict[int, float] = {}
        self._first_at: dict[int, float] = {}
        self._ttft, self._tpot = Latencies(limits.get("ttft")), Latencies(limits.get("tpot"))

    def issue(self, queries: Sequence[int], now: float, *, stream: bool) -> None:
        """Count issued queries."""
        self.issued += len(queries)
        if stream:
            self._issued_at.update(dict.fromkeys(queries, now))

    def first(self, answers: Sequence[Answer], now: float) -> None:
        """Record the time of first tokens."""
        new = self._ttft.new
        for answer in answers:
            new.append(now - self._issued_at.pop(answer.query))
            self._first_at[answer.query] = now

    def finish(self, answers: Sequence[Answer], now: float) -> None:
        """Count finished answers."""
        self.done += len(answers)
        for answer in answers:
            self.tokens += len(answer.ids)
            first = self._first_at.pop(answer.query, None)
            if first is not None and len(answer.ids) > 1:
                self._tpot.new.append((now - first) / (len(answer.ids) - 1))

    def snapshot(self, now: float) -> dict[str, Any]:
        """Return the totals, and figures of `ttft` and `tpot` if there are first tokens."""
        figures: dict[str, Any] = {"issued": self.issued, "done": self.done, "tokens": self.tokens}
        for name, latencies, late in (("ttft", self._ttft, self._late(now)), ("tpot", self._tpot, 0)):
            if found := latencies.snapshot(late):
                figures[name] = found
        return figures

    def _late(self, now: float) -> int:
        """Count the queries that wait for their first token for longer than the limit; the oldest are first."""
        limit_ms = self._ttft.limit_ms
        if limit_ms is None:
            return 0
        return sum(1 for _ in takewhile(lambda issued: (now - issued) * _MS >= limit_ms, self._issued_at.values()))
