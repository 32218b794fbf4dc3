"""How many samples LoadGen will issue in a cell, and how long that lasts. Pure arithmetic.

Source: loadgen/test_settings_internal.cc and loadgen.cc (query generation), with equal issue on: every performance run
covers the data set a whole number of times.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# LoadGen's own slack: Offline samples for 110 % of the duration, twice the queries that SingleStream's hint asks.
OFFLINE_SLACK = 1.1
SINGLE_STREAM_SLACK = 2


@dataclass(frozen=True)
class Load:
    """What LoadGen is told for one scenario.

    Attributes:
        scenario: LoadGen's (Interactive is Server).
        samples: the data set, N.
        min_duration_s: of the performance run.
        target_qps: Offline and Server.
        target_latency_s: SingleStream's hint.
        min_query_count: what user.conf sets; 0 where it is silent.
        schedule_seed: the round's; decides when Server's queries are due.
    """

    scenario: str
    samples: int
    min_duration_s: float
    target_qps: float
    target_latency_s: float = 0.01
    min_query_count: int = 0
    schedule_seed: int = 0


def _whole_passes(load: Load, count: float) -> int:
    return max(math.ceil(max(count, load.min_query_count) / load.samples), 1) * load.samples


@functools.cache
def _scheduled(load: Load) -> int:
    """Server: LoadGen adds passes until the last query of one is due no earlier than min_duration."""
    wanted = load.min_duration_s * load.target_qps
    count = _whole_passes(load, wanted)
    while True:
        ends = _arrivals(load.schedule_seed, count)[load.samples - 1 :: load.samples]
        if ends[-1] >= wanted:
            return _whole_passes(load, (int(np.argmax(ends >= wanted)) + 1) * load.samples)
        count *= 2


def _arrivals(seed: int, count: int) -> npt.NDArray[np.float64]:
    """When `count` queries are due at one a second: std::exponential_distribution over std::mt19937 in libstdc++."""
    words = np.random.RandomState(seed % 2**32).randint(0, 2**32, 2 * count, dtype=np.uint32).astype(np.float64)
    uniform = (words[::2] + words[1::2] * 2.0**32) / 2.0**64
    due: npt.NDArray[np.float64] = np.cumsum(-np.log1p(-uniform))
    return np.concatenate(([0.0], due[:-1]))


def issued(load: Load, test: str, audit_samples: int = 0) -> int:
    """Samples that LoadGen issues in `test`; `audit_samples` are those of a compliance test."""
    if audit_samples:
        return audit_samples
    if test == "accuracy":
        return load.samples
    if load.scenario == "Offline":
        return _whole_passes(load, int(OFFLINE_SLACK * load.min_duration_s * load.target_qps))
    if load.scenario == "Server":
        return _scheduled(load)
    hinted = int(SINGLE_STREAM_SLACK * load.min_duration_s * (1 / load.target_latency_s))
    # Here LoadGen goes on to the next whole pass even where the count is whole already.
    return _whole_passes(load, max(hinted, load.min_query_count) + 1)


def seconds(load: Load, test: str, rate: float, audit_samples: int = 0) -> float:
    """Predicted wall time of `test` where the system answers `rate` samples a second."""
    count = issued(load, test, audit_samples)
    if load.scenario == "Server":
        return count / load.target_qps
    return count / rate
