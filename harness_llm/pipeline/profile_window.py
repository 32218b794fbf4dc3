"""Profile of a window of a performance run: a torch trace per replica. Such a run is no result."""

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness_llm.errors import RunFailed
from harness_llm.pipeline.profiling import FOLDER, Profiling
from harness_llm.replicas.pool import ReplicaPool

# Part of the samples after which the load is steady: Offline has filled its batches, Server its queues.
_STEADY = 0.25
# A trace of minutes takes minutes to write.
_WRITE_S = 1800.0


@dataclass
class ProfileWindow:
    """Starts the profilers of all replicas in steady state, and stops them after the window or with the run.

    Attributes:
        total: samples of the run.
        profiled_s: duration of the window; 0 before its end.
    """

    asked: Profiling
    total: int
    pool: ReplicaPool
    profiled_s: float = 0.0
    _measured: float = 0.0
    _began: float | None = None
    _begun_after_s: float = 0.0

    def progress(self, body: Mapping[str, Any]) -> None:
        """Take a status message of LoadGen's process; about one per second."""
        now = time.monotonic()
        if body["event"] == "started":
            self._measured = now
        elif body["event"] == "progress" and self._began is None:
            if self.total * _STEADY <= body["done"] < body["issued"]:
                self._began, self._begun_after_s = now, now - self._measured
                self.pool.profile(on=True)
        elif self._began is not None and not self.profiled_s and now - self._began >= self.asked.seconds:
            self._stop(now)

    def _stop(self, now: float) -> None:
        self.profiled_s = now - (self._began or now)
        self.pool.profile(on=False)

    def finish(self, run: Path) -> str:
        """End the window of a finished run, and move the traces to its folder; returns why the run is no result.

        Raises:
            RunFailed: no trace.
            HarnessError: a replica failed while it wrote its trace.
        """
        if self._began is not None:
            if not self.profiled_s:
                self._stop(time.monotonic())
            self.pool.await_profiles(_WRITE_S)
        target = run / FOLDER
        if self.asked.traces.is_dir():
            shutil.move(self.asked.traces, target)
        found = sorted(str(file.relative_to(run)) for file in target.rglob("*.json*")) if target.is_dir() else []
        if not found:
            raise RunFailed("no trace of the profiler", where=str(target), hint="a longer run; see the replica logs")
        return (
            f"profiled for {self.profiled_s:.1f} s, {self._begun_after_s:.1f} s after the start, which slows the run: "
            f"no result; {len(found)} traces, the first is {found[0]}"
        )
