"""Model of the highest target at which every latency is within its limit. Pure.

The logarithm of a latency divided by its limit rises with the logarithm of the target. Near the limit it is a straight
line through zero at the crossing; farther away it deviates in proportion to the distance. Each trial is a point with a
standard deviation, or a lower bound if the queue was growing. A grid over crossings and slopes gives the probability
that the crossing of a latency is above a target. The highest target is below all crossings and below the throughput.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Slopes of log latency by log target: TPOT rises slowly, TTFT at saturation very fast.
_SLOPES = np.geomspace(0.3, 200, 16)
# Deviation from the straight line, relative to the distance from the limit; while a queue grows, TTFT rises steeper.
_CURVATURE = 0.7
_CURVATURE_ABOVE = 1.0
# Logarithms of targets on the grid, on both sides of the trials.
_REACH = math.log(30)
_GRID = 2000
# Scale of the logarithm of the highest target as a share of the throughput.
_SHARE_SCALE = 0.5
# Probability that is too small for a distribution within an interval.
_EXCLUDED = 1e-6

Grid = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """One latency of one trial.

    Attributes:
        x: logarithm of the target.
        y: logarithm of the latency divided by its limit.
        sd: standard deviation of `y`.
        at_least: whether `y` is only a lower bound.
    """

    x: float
    y: float
    sd: float
    at_least: bool = False


@dataclass(frozen=True)
class Throughput:
    """Throughput of the system.

    Attributes:
        y: logarithm of the samples per second.
        scale: of the logistic distribution of `y`.
        sustained: logarithm of a target at which the queue did not grow.
    """

    y: float
    scale: float
    sustained: float


class Crossing:
    """Probability distribution of the highest target within the limits."""

    def __init__(
        self, latencies: Sequence[Sequence[Point]], centre: float, throughput: Throughput | None, drift: float
    ) -> None:
        """Compute the distribution.

        Args:
            latencies: the points of each latency, one per trial.
            centre: a target near which the crossing is expected, for the time before the first trial.
            throughput: of the system, if known.
            drift: standard deviation of the logarithm of the throughput between equal runs.
        """
        x = [point.x for points in latencies for point in points] or [throughput.y if throughput else math.log(centre)]
        self._z = np.linspace(min(x) - _REACH, max(x) + _REACH, _GRID)
        above = np.ones(_GRID)
        for points in latencies:
            above *= _survival(self._z, points, drift)
        if throughput:
            above *= _below_throughput(self._z, throughput)
            above = _weighted(above, np.exp(np.minimum(self._z - throughput.y, 0) / _SHARE_SCALE))
        self._above = above / above[0]

    def quantile(self, share: float) -> float:
        """Return the target above which the crossing is with probability 1 - `share`."""
        return float(np.exp(np.interp(share, 1 - self._above, self._z)))

    def interval(self, share: float, low: float, high: float) -> tuple[float, float]:
        """Return the central interval with probability `share`, given that the crossing is between `low` and `high`.

        If the trials nearly exclude that, all of it; `low` alone if `high` is infinite.
        """
        ends = [float(np.interp(math.log(target), self._z, 1 - self._above)) for target in (low, high)]
        inside = ends[1] - ends[0]
        if inside < _EXCLUDED:
            return low, high if math.isfinite(high) else low
        found = (self.quantile(ends[0] + inside * tail) for tail in ((1 - share) / 2, (1 + share) / 2))
        first, last = (min(max(target, low), high) for target in found)
        return first, last

    def width(self, share: float = 0.8) -> float:
        """Return the ratio of the bounds of the central interval with probability `share`, minus 1."""
        return self.quantile((1 + share) / 2) / self.quantile((1 - share) / 2) - 1

    def probability(self, target: float) -> float:
        """Return the probability that the crossing is above `target`."""
        return float(np.interp(math.log(target), self._z, self._above))


def _survival(z: Grid, points: Sequence[Point], drift: float) -> Grid:
    """Return the probability that the crossing of one latency is above each of `z`."""
    log_likelihood = np.zeros((len(z), len(_SLOPES)))
    for point in points:
        mean = _SLOPES * (point.x - z[:, None])
        # A system that is slower by 1 % is loaded as at a target that is higher by 1 %.
        noise = np.hypot(point.sd, _SLOPES * drift)
        sd = np.hypot(noise, (_CURVATURE_ABOVE if point.at_least else _CURVATURE) * mean)
        if point.at_least:
            log_likelihood += _log_normal((mean - point.y) / sd)
        else:
            log_likelihood += -0.5 * ((point.y - mean) / sd) ** 2 - np.log(sd)
        if point.y > 0 or not point.at_least:  # the curve deviates from the line, but not in its sign
            log_likelihood += _log_normal(np.sign(mean) * point.y / noise)
    density = np.exp(log_likelihood - log_likelihood.max()).sum(axis=1)
    above: Grid = np.clip(1 - np.cumsum(density) / density.sum(), 0, 1)
    return above


def _below_throughput(z: Grid, throughput: Throughput) -> Grid:
    """Return the probability that the throughput is above each of `z`, given that it is above `sustained`."""
    above: Grid = (1 - np.tanh((np.append(z, throughput.sustained) - throughput.y) / throughput.scale / 2)) / 2
    above[:-1][z <= throughput.sustained] = above[-1]
    above = above / above[-1]
    return above[:-1]


def _weighted(above: Grid, weights: Grid) -> Grid:
    """Return the survival function `above` after its density was multiplied by `weights`."""
    density = -np.diff(above, append=0.0) * weights
    weighted: Grid = np.cumsum(density[::-1])[::-1]
    return weighted


def _log_normal(v: Grid) -> Grid:
    """Return the logarithm of the normal distribution function, approximately and not below -28."""
    logarithm: Grid = np.log(0.5 * (1 + np.tanh(v * (0.7978845608 + 0.0356774081 * v * v))) + 1e-12)
    return logarithm
