"""Robust statistics with intervals: Theil and Sen's slope, and the slowdown of one replica against the others."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

import numpy as np
from numpy.typing import NDArray

from harness_llm.analysis.diagnosis.thresholds import CONFIDENCE, FEWEST_BLOCKS
from harness_llm.analysis.student import two_sided_quantile

Floats = NDArray[np.float64]

_MOST_POINTS = 300  # of a slope: it compares all pairs


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval."""

    value: float
    low: float
    high: float


def slope(times: Floats, values: Floats) -> Estimate | None:
    """Theil and Sen's slope: the median of the slopes of all pairs, and its interval (Sen, JASA 63, 1968).

    None for fewer than `FEWEST_BLOCKS` points. Outliers and humps do not change it, only a change that lasts.
    """
    step = -(-len(times) // _MOST_POINTS) or 1
    times, values = times[::step], values[::step]
    count = len(times)
    if count < FEWEST_BLOCKS.value:
        return None
    first, second = np.triu_indices(count, 1)
    distance = times[second] - times[first]
    slopes = np.sort((values[second] - values[first])[distance != 0] / distance[distance != 0])
    if not len(slopes):
        return None
    half = NormalDist().inv_cdf((1 + CONFIDENCE.value) / 2) * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low, high = (int(np.clip((len(slopes) + sign * half) / 2, 0, len(slopes) - 1)) for sign in (-1, 1))
    return Estimate(float(np.median(slopes)), float(slopes[low]), float(slopes[high]))


def slowdowns(blocks: Sequence[Mapping[str, float]]) -> dict[str, Estimate]:
    """The factor by which each replica is slower than the median of the others, from its times in blocks of time.

    The mean of the logarithms of the ratios over the blocks, with Student's interval. Blocks without every replica are
    ignored.
    """
    names = sorted(set().union(*blocks)) if blocks else []
    whole = [block for block in blocks if len(block) == len(names)]
    if len(names) <= 1 or len(whole) < FEWEST_BLOCKS.value:
        return {}
    return {name: _slowdown([_log_ratio(block, name) for block in whole]) for name in names}


def _log_ratio(block: Mapping[str, float], name: str) -> float:
    others = [math.log(value) for other, value in block.items() if other != name]
    return math.log(block[name]) - float(np.median(others))


def _slowdown(logs: Sequence[float]) -> Estimate:
    half = two_sided_quantile(CONFIDENCE.value, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    middle = fmean(logs)
    return Estimate(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def percentile(values: Floats, percent: int) -> float:
    """The percentile as LoadGen ranks it; NaN without values."""
    ranked = np.sort(values[~np.isnan(values)])
    return float(ranked[min(len(ranked) * percent // 100, len(ranked) - 1)]) if len(ranked) else math.nan


def level(times: Floats, starts: Floats, ends: Floats) -> Floats:
    """The number of intervals that contain each of `times`; an end that is NaN never happens."""
    begun = np.searchsorted(np.sort(starts[~np.isnan(starts)]), times, side="right")
    ended = np.searchsorted(np.sort(ends[~np.isnan(ends)]), times, side="right")
    return np.asarray(begun - ended, dtype=np.float64)
