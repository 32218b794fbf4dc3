"""Reduce series to what a chart can show, keeping lowest and highest values. Pure functions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness_llm.analysis.report.chart import Floats

Places = NDArray[np.intp]

MOST_INTERVALS = 240
"""Intervals of a time axis: about one per two pixels of a chart."""
MOST_POINTS = 1200
"""Points of a scatter plot."""
_SEED = 1


@dataclass(frozen=True)
class Binned:
    """Values by intervals of time; NaN for an interval without values.

    Attributes:
        time: middle of each interval.
        width: seconds of an interval.
    """

    time: Floats
    mean: Floats
    low: Floats
    high: Floats
    width: float


def edges(end: float, most: int = MOST_INTERVALS) -> Floats:
    """Edges of at least one interval, of equal whole seconds, from 0 to `end`; the last may end later."""
    width = max(1, int(np.ceil(end / most)))
    return np.arange(0.0, max(end, width) + width, width, dtype=np.float64)


def binned(time: Floats, values: Floats, bounds: Floats) -> Binned:
    """Mean, minimum and maximum of `values` in each interval of `bounds`."""
    known = np.isfinite(values) & (time >= bounds[0]) & (time < bounds[-1])
    place = np.searchsorted(bounds, time[known], side="right") - 1
    count = len(bounds) - 1
    found = values[known]
    total, number = np.bincount(place, found, count), np.bincount(place, minlength=count)
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, place, found)
    np.maximum.at(high, place, found)
    empty = number == 0
    mean = np.divide(total, number, out=np.full(count, np.nan), where=~empty)
    low[empty] = high[empty] = np.nan
    return Binned((bounds[:-1] + bounds[1:]) / 2, mean, low, high, float(bounds[1] - bounds[0]))


def rate(time: Floats, amounts: Floats, bounds: Floats) -> Floats:
    """Amounts per second in each interval, from `amounts` that were produced since the previous `time`."""
    order = np.argsort(time)
    total = np.cumsum(np.nan_to_num(amounts[order]))
    return np.asarray(np.diff(np.interp(bounds, time[order], total, left=0.0)) / np.diff(bounds))


def quantile_curve(values: Floats, most: int = 200) -> tuple[Floats, Floats]:
    """Positions on the scale of nines, and the values there, by LoadGen's rule: the value of rank floor(share * n).

    The last position is that of the highest value.
    """
    ordered, size = np.sort(values), len(values)
    positions = np.linspace(0.0, np.log10(2 * size), most)
    ranks = np.floor((1 - 10.0**-positions) * size).astype(np.intp)
    return positions, ordered[np.clip(ranks, 0, size - 1)]


def loadgen_quantile(values: Floats, share: float) -> float:
    """The value of rank floor(share * n) of the sorted values, as LoadGen's percentiles."""
    return float(np.sort(values)[min(int(share * len(values)), len(values) - 1)])


def groups_of_equal_size(keys: Floats, most: int = 12, fewest: int = 30) -> list[Places]:
    """Indices of the values, by ascending `keys`, in up to `most` groups of at least `fewest`; equal keys together."""
    count = max(1, min(most, len(keys) // fewest))
    bounds = np.unique(np.quantile(keys, np.linspace(0, 1, count + 1)))
    places = np.clip(np.searchsorted(bounds, keys, side="right") - 1, 0, max(len(bounds) - 2, 0))
    return [found for place in np.unique(places) if len(found := np.flatnonzero(places == place))]


def chosen(count: int, most: int = MOST_POINTS) -> Places:
    """Indices of at most `most` of `count` values, chosen at random with a fixed seed."""
    if count <= most:
        return np.arange(count, dtype=np.intp)
    return np.sort(np.random.default_rng(_SEED).choice(count, most, replace=False)).astype(np.intp)
