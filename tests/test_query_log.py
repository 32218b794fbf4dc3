"""The query log while the SUT thread adds events: a failed run writes its records before that thread has ended."""

import threading

import numpy as np

from harness_llm.loadgen.query_log import QueryLog
from harness_llm.loadgen.replica_client import Issued, Sent

QUERIES = 30_000


def test_log_is_read_while_events_are_added() -> None:
    log = QueryLog()

    def fill() -> None:
        for query in range(QUERIES):
            log.sent([Issued([query], [0], float(query))], [Sent("replica-0", [query], float(query))])
            log.finish([query], [7], float(query))

    thread = threading.Thread(target=fill)
    thread.start()
    while thread.is_alive():
        assert not np.asarray(log.columns(0.0, np.array([3]))["requeues"]).any()
    assert len(np.asarray(log.columns(0.0, np.array([3]))["send_s"])) == QUERIES
