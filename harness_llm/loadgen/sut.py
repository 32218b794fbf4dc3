"""The SUT: one thread that polls the replica client and reports tokens and answers to LoadGen.

LoadGen's issue callback is `ReplicaClient.issue`, which only queues. Both completion calls to LoadGen come from this
thread: from two threads, a completion could overtake its first token (loadgen/logging.cc).
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import mlperf_loadgen as lg
import numpy as np

from harness_llm.errors import RunFailed
from harness_llm.loadgen.meter import Meter
from harness_llm.loadgen.recorder import RunLog
from harness_llm.loadgen.replica_client import ReplicaClient
from harness_llm.protocol.messages import Answer

IDLE_MS = 100
REPORT_INTERVAL_S = 1.0
# LoadGen counts no tokens of a shorter answer (logging.cc:442-454).
MIN_TOKENS = 2


def responses(answers: Sequence[Answer]) -> "list[lg.QuerySampleResponse]":
    """Return LoadGen's view of `answers`; valid as long as these exist."""
    return [
        lg.QuerySampleResponse(answer.query, answer.ids.ctypes.data, answer.ids.nbytes, len(answer.ids))
        for answer in answers
    ]


class Sut:
    """Reports what the replica client receives to LoadGen while a run lasts."""

    def __init__(
        self,
        replica_client: ReplicaClient,
        *,
        stream: bool,
        report: Callable[[Meter], None],
        fail: Callable[[Exception], None],
        log: RunLog | None = None,
        limits_ms: Mapping[str, float] | None = None,
    ) -> None:
        """Create a SUT; `start` starts its thread.

        Args:
            report: called with the totals every REPORT_INTERVAL_S.
            fail: called with an error; ends the process.
            log: records, if they are enabled.
            limits_ms: p99 limits of `ttft` and `tpot`, for the counts in the totals.
        """
        self.meter = Meter(limits_ms)
        self._log = log
        self._replica_client = replica_client
        self._stream = stream
        self._report = report
        self._fail = fail
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="sut", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; LoadGen has finished."""
        self._stopped = True
        self._replica_client.issue([], [])  # wakes the thread
        self._thread.join()

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # noqa: BLE001 - LoadGen would wait forever
            self._fail(error)

    def _serve(self) -> None:
        reported = 0.0
        while not self._stopped:
            replies = self._replica_client.poll(IDLE_MS, self._first_tokens)
            now = time.perf_counter()
            for issued in replies.issued:
                self.meter.issue(issued.queries, issued.at, stream=self._stream)
            if replies.finished:
                self._completions(replies.finished, now)
            if self._log:
                if replies.finished:
                    self._log.queries.finish(replies.finished_queries, replies.finished_lengths, now)
                self._log.queries.sent(replies.issued, replies.sent)
                self._log.replicas.add(replies.heartbeats)
            if now - reported >= REPORT_INTERVAL_S:
                self._report(self.meter)
                reported = now
        self._report(self.meter)

    def _first_tokens(self, answers: list[Answer]) -> None:
        now = time.perf_counter()
        lg.FirstTokenComplete(responses(answers))
        self.meter.first(answers, now)
        if self._log:
            self._log.queries.first(answers, now)

    def _completions(self, answers: list[Answer], now: float) -> None:
        short = next((a for a in answers if len(a.ids) < MIN_TOKENS), None)
        if short:
            raise RunFailed(
                "an answer has fewer than two tokens, which LoadGen does not count",
                expected=f"at least {MIN_TOKENS} token ids",
                found=str(np.asarray(short.ids).tolist()),
                hint="the model must not end an answer immediately; check its quantization",
            )
        lg.QuerySamplesComplete(responses(answers))
        self.meter.finish(answers, now)
