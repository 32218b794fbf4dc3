"""Heartbeats as columns of replicas.parquet."""

import numpy as np
import pytest

from harness_llm.loadgen.replica_log import ReplicaLog
from harness_llm.protocol.messages import Activity, Endpoint, Heartbeat


@pytest.mark.parametrize(("running", "steps"), [(3, [np.nan, 5.0]), (None, [np.nan, np.nan])])
def test_steps_are_null_for_an_engine_without_a_known_batch(running: int | None, steps: list[float]) -> None:
    """As of an engine over HTTP: its replica counts the arrivals of outputs."""
    endpoint, log = Endpoint("ipc://data", "ipc://beats", "", "replica-0"), ReplicaLog()
    for second in (1, 2):
        beat = Heartbeat("ipc://data", 1, 5 * second, True, float(second), Activity(100 * second, running))
        log.add([(endpoint, beat, 3, float(second))])
    columns = log.columns(0.0)
    np.testing.assert_array_equal(columns["steps"], steps)
    np.testing.assert_array_equal(columns["output_tokens"], [np.nan, 100.0])
