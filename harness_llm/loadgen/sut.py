"""The system under test as LoadGen sees it: one thread that feeds the replica pool and reports what comes back.

LoadGen's issue callback only appends and wakes the thread. The thread alone makes both LoadGen calls: from two threads
a completion can overtake its first token (loadgen/logging.cc).
"""

import threading
import time
from collections.abc import Callable, Sequence

import mlperf_loadgen as lg
import numpy as np

from harness_llm.errors import HarnessError, RunFailed
from harness_llm.loadgen.meter import Meter
from harness_llm.loadgen.replica_client import ReplicaClient
from harness_llm.protocol.mailbox import Mailbox
from harness_llm.protocol.messages import Answer

IDLE_MS = 100
REPORT_EVERY_S = 0.5
# LoadGen counts no tokens for an answer of fewer (logging.cc:442-454).
FEWEST_TOKENS = 2


def responses(answers: Sequence[Answer]) -> "list[lg.QuerySampleResponse]":
    """What LoadGen is handed; valid as long as `answers` live."""
    return [
        lg.QuerySampleResponse(answer.query, answer.ids.ctypes.data, answer.ids.nbytes, len(answer.ids))
        for answer in answers
    ]


class Sut:
    """Stands between LoadGen and the replica pool while one run runs."""

    def __init__(
        self,
        replica_client: ReplicaClient,
        *,
        stream: bool,
        report: Callable[[Meter], None],
        fail: Callable[[Exception], None],
    ) -> None:
        """`report` is called with the totals now and then; `fail` ends the process."""
        self.meter = Meter()
        self._replica_client = replica_client
        self._stream = stream
        self._report = report
        self._fail = fail
        self._issued: Mailbox[tuple[list[int], list[int]]] = Mailbox()
        self._over = False
        replica_client.listen(self._issued.arrivals, self._take_issued)
        self._thread = threading.Thread(target=self._work, name="sut", daemon=True)

    def issue(self, queries: list[int], indices: list[int]) -> None:
        """LoadGen's callback."""
        self._issued.put((queries, indices))

    def flush(self) -> None:
        """LoadGen's callback; nothing is held back, so there is nothing to flush."""

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """LoadGen is done; returns when the thread is."""
        self._over = True
        self._issued.put(([], []))
        self._thread.join()

    def _work(self) -> None:
        try:
            self._serve()
        except (HarnessError, Exception) as error:  # noqa: BLE001 - LoadGen would wait for ever
            self._fail(error)

    def _serve(self) -> None:
        reported = 0.0
        while not self._over:
            poll = self._replica_client.poll(IDLE_MS)
            now = time.perf_counter()
            if poll.first:  # before all else, for LoadGen takes their time as it is told
                self._first_tokens(poll.first, now)
            self._replica_client.feed()
            if poll.finished:
                self._completions(poll.finished, now)
            if now - reported >= REPORT_EVERY_S:
                self._report(self.meter)
                reported = now
        self._report(self.meter)

    def _take_issued(self) -> None:
        now = time.perf_counter()
        for queries, indices in self._issued.take():
            self.meter.issue(queries, now, stream=self._stream)
            self._replica_client.offer(queries, indices)

    def _first_tokens(self, answers: list[Answer], now: float) -> None:
        lg.FirstTokenComplete(responses(answers))
        self.meter.first(answers, now)

    def _completions(self, answers: list[Answer], now: float) -> None:
        short = next((a for a in answers if len(a.ids) < FEWEST_TOKENS), None)
        if short:
            raise RunFailed(
                "an answer has fewer than two tokens, which LoadGen does not count",
                expected=f"at least {FEWEST_TOKENS} token ids",
                found=str(np.asarray(short.ids).tolist()),
                hint="the model must not end an answer at once; look at its quantization",
            )
        lg.QuerySamplesComplete(responses(answers))
        self.meter.finish(answers, now)
