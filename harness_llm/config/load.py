"""How many samples LoadGen will issue in a run, and how long that lasts. Pure arithmetic.

Source: loadgen/test_settings_internal.cc and loadgen.cc (query generation), with equal issue on: every performance run
covers the data set a whole number of times. Server's arrivals are random: within one percent of a whole number of
passes, LoadGen may add one more. Their seed is known and deliberately not used: nothing in this program may know when
a query comes (inference_rules.adoc, on LoadGen knowledge).
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
        samples: the performance set, N.
        accuracy_samples: the accuracy set, which most benchmarks have in common with it.
        min_duration_s: of the performance run.
        target_qps: Offline and Server.
        target_latency_s: SingleStream's hint.
        min_query_count: what user.conf sets; 0 where it is silent.
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
    """Samples that LoadGen issues in `test`; `audit_samples` are those of a compliance test."""
    if audit_samples:
        return audit_samples
    if test == "accuracy":
        return load.accuracy_samples
    if load.scenario == "Offline":
        return _whole_passes(load, int(OFFLINE_SLACK * load.min_duration_s * load.target_qps))
    if load.scenario == "Server":
        return _whole_passes(load, load.min_duration_s * load.target_qps)
    hinted = int(SINGLE_STREAM_SLACK * load.min_duration_s * (1 / load.target_latency_s))
    # Here LoadGen goes on to the next whole pass even where the count is whole already.
    return _whole_passes(load, max(hinted, load.min_query_count) + 1)


def seconds(load: Load, test: str, rate: float, audit_samples: int = 0) -> float:
    """Predicted wall time of `test` where the system answers `rate` samples a second."""
    count = issued(load, test, audit_samples)
    if load.scenario == "Server":
        return count / load.target_qps
    return count / rate
