"""Confidence intervals of ratios of figures, between runs and within runs. Pure functions.

Figures are compared by their logarithms: noise of rates and latencies is proportional to their size. The interval is
Welch's (Biometrika 34, 1947), for the difference of two means with different variances.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from harness_llm.analysis.student import two_sided_quantile

CONFIDENCE = 0.95
FEWEST_RUNS = 3
"""Runs per side below which a comparison is inconclusive: one degree of freedom gives no useful interval."""


@dataclass(frozen=True)
class Spread:
    """Uncertainty of the logarithm of one figure: squared standard error, and its degrees of freedom."""

    variance: float
    freedom: float


@dataclass(frozen=True)
class Estimate:
    """The logarithm of a figure and its uncertainty."""

    log: float
    spread: Spread


@dataclass(frozen=True)
class Interval:
    """Confidence interval of B / A."""

    low: float
    high: float

    @property
    def inverse(self) -> "Interval":
        """The interval of A / B."""
        return Interval(1 / self.high, 1 / self.low)


def between_runs(values: Sequence[float]) -> Estimate | None:
    """The estimate from the figures of at least `FEWEST_RUNS` runs; None if there are fewer, or one is not positive."""
    if len(values) < FEWEST_RUNS or min(values) <= 0:
        return None
    logs = [math.log(value) for value in values]
    return Estimate(fmean(logs), Spread(variance(logs) / len(logs), len(logs) - 1))


def within_runs(values: Sequence[float], spreads: Sequence[Spread | None]) -> Estimate | None:
    """The estimate from the figures of runs and their spreads within each; None if a spread is missing.

    It excludes the variation between runs, so its interval is a lower bound.
    """
    known = [spread for spread in spreads if spread]
    if not values or len(known) < len(values) or min(values) <= 0:
        return None
    freedom = sum(spread.freedom for spread in known)
    spread = Spread(sum(spread.variance for spread in known) / len(values) ** 2, freedom)
    return Estimate(fmean(math.log(value) for value in values), spread)


def ratio(a: Estimate, b: Estimate, confidence: float = CONFIDENCE) -> Interval:
    """The interval of B / A."""
    parts = [estimate.spread for estimate in (a, b)]
    total = sum(part.variance for part in parts)
    difference = b.log - a.log
    if total == 0:
        return Interval(math.exp(difference), math.exp(difference))
    # Welch and Satterthwaite; in shares of the total, because squares of small variances underflow.
    freedom = 1 / sum((part.variance / total) ** 2 / part.freedom for part in parts)
    half = two_sided_quantile(confidence, freedom) * math.sqrt(total)
    return Interval(math.exp(difference - half), math.exp(difference + half))
