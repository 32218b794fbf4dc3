"""How many samples LoadGen will issue in a cell, and how long that lasts. Pure arithmetic.

Source: loadgen/test_settings_internal.cc and loadgen.cc (query generation), with equal issue on: every performance run
covers the data set a whole number of times.
"""

import math
from dataclasses import dataclass

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
    """

    scenario: str
    samples: int
    min_duration_s: float
    target_qps: float
    target_latency_s: float = 0.01


def _whole_passes(count: float, samples: int) -> int:
    return max(math.ceil(count / samples), 1) * samples


def issued(load: Load, test: str, audit_samples: int = 0) -> int:
    """Samples that LoadGen issues in `test`; `audit_samples` are those of a compliance test."""
    if audit_samples:
        return audit_samples
    if test == "accuracy":
        return load.samples
    if load.scenario == "Offline":
        return _whole_passes(OFFLINE_SLACK * load.min_duration_s * load.target_qps, load.samples)
    if load.scenario == "Server":
        return _whole_passes(load.min_duration_s * load.target_qps, load.samples)
    return _whole_passes(SINGLE_STREAM_SLACK * load.min_duration_s / load.target_latency_s + 1, load.samples)


def seconds(load: Load, test: str, rate: float, audit_samples: int = 0) -> float:
    """Predicted wall time of `test` where the system answers `rate` samples a second."""
    count = issued(load, test, audit_samples)
    if load.scenario == "Server":
        return count / load.target_qps
    return count / rate
