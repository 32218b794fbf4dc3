"""Recorder: collects the records of a run in LoadGen's process and writes them when it ends, also by a failure."""

import threading
import time
import traceback
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from harness_llm.loadgen.query_log import QueryLog
from harness_llm.loadgen.replica_log import ReplicaLog
from harness_llm.loadgen.run_spec import RunSpec
from harness_llm.protocol import record_files


class RunLog(NamedTuple):
    """What is recorded while LoadGen runs."""

    queries: QueryLog
    replicas: ReplicaLog


class Recorder:
    """Records of one run; time 0 is the start of LoadGen."""

    def __init__(self, spec: RunSpec) -> None:
        """Create the records of the run of `spec`, which may disable them."""
        self._enabled, self._folder = spec.records, Path(spec.output)
        self._log: RunLog | None = None
        self._start, self._start_unix_s = 0.0, 0.0
        self._prompt_tokens: npt.NDArray[np.int64]
        # Reentrant: a signal handler may interrupt `write`.
        self._lock, self._written = threading.RLock(), False

    def start(self, prompt_tokens: npt.NDArray[np.int64]) -> RunLog | None:
        """Set time 0 and return the log; None if records are disabled.

        Args:
            prompt_tokens: by sample.
        """
        self._start, self._start_unix_s = time.perf_counter(), time.time()
        self._prompt_tokens = prompt_tokens
        if self._enabled:
            self._log = RunLog(QueryLog(), ReplicaLog())
        return self._log

    @property
    def started(self) -> dict[str, float]:
        """Time 0 on the clock of time.perf_counter and in seconds since 1970."""
        return {"clock_s": self._start, "unix_s": self._start_unix_s}

    def write(self) -> None:
        """Write the records of a started run once, from any thread; an error only goes to this process's log."""
        with self._lock:
            if self._log is None or self._written:
                return
            self._written = True
            self._try(self._log)

    def _try(self, log: RunLog) -> None:
        try:
            queries = log.queries.columns(self._start, self._prompt_tokens)
            record_files.write(self._folder, record_files.QUERIES, queries, self._start_unix_s)
            replicas = log.replicas.columns(self._start)
            record_files.write(self._folder, record_files.REPLICAS, replicas, self._start_unix_s)
        except Exception as error:  # noqa: BLE001 - the run is complete without them
            traceback.print_exception(error)
