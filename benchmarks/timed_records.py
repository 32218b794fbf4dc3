"""LoadGen's process that measures the time of the calls that record, beside the CPU time of their thread.

Equal runs differ by 8 %, far more than records cost. Run as `python -m benchmarks.timed_records SPEC.json` by the
pipeline.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness_llm.loadgen.query_log import QueryLog
from harness_llm.loadgen.recorder import Recorder, RunLog
from harness_llm.loadgen.replica_client import Beat, Issued, Sent
from harness_llm.loadgen.replica_log import ReplicaLog
from harness_llm.loadgen.run_spec import RunSpec
from harness_llm.protocol.messages import Answer

TIMES = "record_times.json"


@dataclass
class RecordTimes:
    """Seconds of one run.

    Attributes:
        recording_s: of the calls that record, in the SUT's thread.
        thread_cpu_s: CPU time of this thread, these calls included.
        answers: recorded answers.
    """

    recording_s: float = 0.0
    thread_cpu_s: float = 0.0
    answers: int = 0

    @property
    def share(self) -> float:
        """Time that records add, relative to that of the thread without them."""
        return self.recording_s / (self.thread_cpu_s - self.recording_s)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Add the time of the block."""
        began = time.perf_counter()
        yield
        self.recording_s += time.perf_counter() - began


class TimedQueryLog(QueryLog):
    """A query log that measures its calls."""

    def __init__(self, times: RecordTimes) -> None:
        """Add the times to `times`."""
        super().__init__()
        self._times = times

    def sent(self, issued: Iterable[Issued], sent: Iterable[Sent]) -> None:
        """Record messages."""
        with self._times.measured():
            super().sent(issued, sent)

    def first(self, answers: Iterable[Answer], at: float) -> None:
        """Record first tokens."""
        with self._times.measured():
            super().first(answers, at)

    def finish(self, queries: Sequence[int], tokens: Sequence[int], at: float) -> None:
        """Record answers."""
        with self._times.measured():
            super().finish(queries, tokens, at)
        self._times.answers += len(queries)
        self._times.thread_cpu_s = time.thread_time()


class TimedReplicaLog(ReplicaLog):
    """A replica log that measures its calls."""

    def __init__(self, times: RecordTimes) -> None:
        """Add the times to `times`."""
        super().__init__()
        self._times = times

    def add(self, heartbeats: Iterable[Beat]) -> None:
        """Record heartbeats."""
        with self._times.measured():
            super().add(heartbeats)


class TimedRecorder(Recorder):
    """Writes the times beside the records."""

    def __init__(self, spec: RunSpec) -> None:
        """Create the records of the run of `spec`."""
        super().__init__(spec)
        self._file, self._times = Path(spec.output) / TIMES, RecordTimes()

    def start(self, prompt_tokens: npt.NDArray[np.int64]) -> RunLog:
        """Set time 0 and return the log."""
        super().start(prompt_tokens)
        self._log = RunLog(TimedQueryLog(self._times), TimedReplicaLog(self._times))
        return self._log

    def write(self) -> None:
        """Write the records and the times."""
        super().write()
        self._file.write_text(json.dumps(asdict(self._times)))


if __name__ == "__main__":
    from harness_llm.loadgen.process import main  # imports LoadGen, which only the run's processes have

    main(TimedRecorder)
