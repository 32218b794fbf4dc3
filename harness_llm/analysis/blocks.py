"""Uncertainty of a run's figures by a bootstrap of blocks of time. Pure functions.

Queries that run together share the load, so neighbours are correlated and a bootstrap of single queries understates
the noise. Blocks of time keep the correlation within a block (Künsch, Annals of Statistics 17, 1989). Blocks that pass
the end of the run continue at its start, so that each instant counts equally (Politis and Romano, in: Exploring the
Limits of Bootstrap, 1992).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness_llm.analysis.interval import Spread

Floats = NDArray[np.float64]

PERCENTILES = (50, 90, 99)
_MS = 1000
_REPLICATES = 200  # the standard error of a standard error is then 5 %
_MOST_BLOCKS, _FEWEST_BLOCKS = 20, 10
_ANSWERS_PER_BLOCK = 2
_FEWEST_QUERIES = 100
_SEED = 1


@dataclass(frozen=True)
class QueryTimes:
    """The completed queries of a run; times in seconds of one clock.

    Attributes:
        first_token_s: NaN in scenarios without first tokens.
    """

    issue_s: Floats
    send_s: Floats
    first_token_s: Floats
    completion_s: Floats
    output_tokens: Floats

    @property
    def latencies_ms(self) -> dict[str, Floats]:
        """TTFT, TPOT and latency of each query; without the first two if there are no first tokens."""
        found = {"latency": self.completion_s - self.issue_s}
        if not np.isnan(self.first_token_s).any():
            found["ttft"] = self.first_token_s - self.issue_s
            found["tpot"] = (self.completion_s - self.first_token_s) / np.maximum(self.output_tokens - 1, 1)
        return {name: values * _MS for name, values in found.items()}


def block_length(duration_s: float, answer_s: float) -> float | None:
    """Seconds of a block: the longer of two answers and a twentieth of the run, but at most a tenth of the run.

    Queries that run at the same time are correlated, hence two answers. A queue near saturation changes more slowly: a
    twentieth of a run of 600 s is the best length for a correlation time of 5 s. Fewer than ten blocks do not measure a
    variance. None if a tenth of the run is shorter than one answer.
    """
    most = duration_s / _FEWEST_BLOCKS
    if answer_s > most:
        return None
    return min(max(duration_s / _MOST_BLOCKS, _ANSWERS_PER_BLOCK * answer_s), most)


def spreads(queries: QueryTimes) -> dict[str, Spread]:
    """The spread of each figure by name; empty for a run that is too short.

    Start and drain of the run count as variation, so intervals are rather too wide than too narrow.
    """
    if len(queries.issue_s) < _FEWEST_QUERIES:
        return {}
    times = queries.completion_s - queries.issue_s.min()
    duration = float(times.max())
    length = block_length(duration, float(np.mean(queries.completion_s - queries.send_s)))
    if length is None:
        return {}
    count = round(duration / length)
    replicates = _replicates(queries, times, duration, count)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = {name: np.log(values) for name, values in replicates.items()}
    return {
        name: Spread(float(np.var(values)), count - 1) for name, values in logs.items() if np.isfinite(values).all()
    }


def _replicates(queries: QueryTimes, times: Floats, duration: float, count: int) -> Mapping[str, Floats]:
    """The figures of runs that are made of `count` blocks each."""
    order = np.argsort(times)
    latencies = {name: values[order] for name, values in queries.latencies_ms.items()}
    ranks = {name: np.argsort(values) for name, values in latencies.items()}
    tokens = queries.output_tokens[order]
    random = np.random.default_rng(_SEED)
    found: dict[str, list[float]] = {}
    for _ in range(_REPLICATES):
        weights = _weights(times[order], random.uniform(0, duration, count), duration, count)
        found.setdefault("tokens_per_second", []).append(float(weights @ tokens) / duration)
        found.setdefault("samples_per_second", []).append(float(weights.sum()) / duration)
        for name, values in latencies.items():
            for percentile, value in zip(PERCENTILES, _percentiles(values, ranks[name], weights), strict=True):
                found.setdefault(f"p{percentile}_{name}_ms", []).append(value)
    return {name: np.array(values) for name, values in found.items()}


def _weights(times: Floats, starts: Floats, duration: float, count: int) -> Floats:
    """How many of the `count` blocks contain each of the sorted `times`."""
    size = len(times)
    around = np.concatenate([times, times + duration])
    changes = np.bincount(np.searchsorted(around, starts), minlength=2 * size + 1).astype(float)
    changes -= np.bincount(np.searchsorted(around, starts + duration / count), minlength=2 * size + 1)
    covered = np.cumsum(changes)[: 2 * size]
    return np.asarray(covered[:size] + covered[size:])


def _percentiles(values: Floats, rank: NDArray[np.intp], weights: Floats) -> list[float]:
    """The weighted percentiles of `values`; NaN if no query has a weight."""
    cumulated = np.cumsum(weights[rank])
    if cumulated[-1] == 0:
        return [math.nan] * len(PERCENTILES)
    positions = np.searchsorted(cumulated, np.array(PERCENTILES) / 100 * cumulated[-1])
    return [float(value) for value in values[rank[np.minimum(positions, len(rank) - 1)]]]
