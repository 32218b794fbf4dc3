"""Number of samples that LoadGen issues in a run, and the duration of the run.

Source: loadgen/test_settings_internal.cc and loadgen.cc (query generation), with equal issue on: every performance run
covers the data set a whole number of times. Server's arrivals are random: within one percent of a whole number of
passes, LoadGen may add one more. Their seed is public but not used: the system under test must not use knowledge of
LoadGen (inference_rules.adoc).
"""

import math
from dataclasses import dataclass

# LoadGen's slack: Offline has samples for 110 % of the duration, SingleStream twice the queries of its target.
OFFLINE_SLACK = 1.1
SINGLE_STREAM_SLACK = 2


@dataclass(frozen=True)
class Load:
    """LoadGen's settings of one scenario.

    Attributes:
        scenario: LoadGen's name (Interactive is Server).
        samples: size of the performance set.
        accuracy_samples: size of the accuracy set, which for most benchmarks is the same set.
        min_duration_s: of the performance run.
        target_qps: for Offline and Server.
        target_latency_s: for SingleStream.
        min_query_count: of user.conf; 0 if it is not set.
    """

    scenario: str
    samples: int
    accuracy_samples: int
    min_duration_s: float
    target_qps: float
    target_latency_s: float = 0.01
    min_query_count: int = 0


def _whole_passes(load: Load, count: float) -> int:
    return max(math.ceil(max(count, load.min_query_count) / load.samples), 1) * load.samples


def issued(load: Load, test: str, audit_samples: int = 0) -> int:
    """Samples that LoadGen issues in `test`; `audit_samples` for a compliance test."""
    if audit_samples:
        return audit_samples
    if test == "accuracy":
        return load.accuracy_samples
    if load.scenario == "Offline":
        return _whole_passes(load, int(OFFLINE_SLACK * load.min_duration_s * load.target_qps))
    if load.scenario == "Server":
        return _whole_passes(load, load.min_duration_s * load.target_qps)
    estimated = int(SINGLE_STREAM_SLACK * load.min_duration_s * (1 / load.target_latency_s))
    # LoadGen adds a pass even if the count is a whole number of passes.
    return _whole_passes(load, max(estimated, load.min_query_count) + 1)


def seconds(load: Load, test: str, rate: float, audit_samples: int = 0) -> float:
    """Predicted wall time of `test` at `rate` samples per second."""
    count = issued(load, test, audit_samples)
    if load.scenario == "Server":
        return count / load.target_qps
    return count / rate
