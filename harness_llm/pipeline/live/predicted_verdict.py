"""Prediction of LoadGen's verdict while a performance run is in progress. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from harness_llm.loadgen.early_stopping import allowed_over

# Three standard errors of the share so far. Latencies of neighbouring queries are alike, so the range is a lower bound.
_SIGMAS = 3
_ENOUGH = 100


@dataclass(frozen=True)
class Slow:
    """Queries of a run so far whose latency is not below its limit: `over` of `count`."""

    over: int
    count: int

    @property
    def share(self) -> float:
        """Share of the queries so far."""
        return self.over / self.count if self.count else 0.0

    def error(self, total: int) -> float:
        """Uncertainty of the share of all `total` queries, by those that are still missing."""
        count = max(self.count, 1)
        share = min(max(self.share, 1 / count), 1.0)
        return _SIGMAS * math.sqrt(share * (1 - share) / count) * max(1 - count / max(total, 1), 0.0)


@dataclass(frozen=True)
class Verdict:
    """The verdict if the run continues as before.

    Attributes:
        state: VALID, INVALID, DEGRADED, or `open` while the queries so far do not decide.
        reason: why, in one line; empty for VALID.
    """

    state: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else self.state


OPEN, VALID, INVALID, DEGRADED = "open", "VALID", "INVALID", "DEGRADED"


def predict_verdict(slow: Mapping[str, Slow], total: int, duration_s: float, min_duration_s: float) -> Verdict:
    """Predict the verdict of a run of `total` queries and, by its rate so far, `duration_s` seconds.

    Args:
        slow: of `TTFT` and `TPOT`, where they have a limit.
    """
    if duration_s < min_duration_s:
        return Verdict(INVALID, f"duration of {duration_s:,.0f} s predicted, min_duration is {min_duration_s:,.0f} s")
    most = allowed_over(total)
    if slow and most < 0:
        return Verdict(INVALID, f"{total} queries are too few for LoadGen's early stopping")
    allowed = most / max(total, 1)
    for name, found in slow.items():
        text = f"{found.share:.2%} of the queries are above the {name} limit, {allowed:.2%} are allowed"
        if found.over > most or found.share - found.error(total) > allowed:
            return Verdict(INVALID, text)
        if found.count < _ENOUGH:
            return Verdict(OPEN, f"{found.count} queries with {name}")
        if found.share + found.error(total) > allowed:
            return Verdict(OPEN, text)
    return Verdict(VALID)
