"""A replica that records when each query enters its engine; a mode file selects how it waits.

Run like harness_llm.replicas.replica. The file named by MODE contains `blocking` (the engine blocks within its step and
Run like harness_llm.replicas.replica. The file named by MODE contains `blocking` (the engine blocks in its step, and
list of [query, time.perf_counter()] per run.
"""

import json
import os
import select
import time
from pathlib import Path
from typing import Any

from harness_llm.config.benchmark import Sampling
from harness_llm.protocol.counters import Counters
from harness_llm.replicas import replica
from harness_llm.replicas.engines.engine import Step, build_engine

MODE, TIMES = "BENCH_MODE", "BENCH_TIMES"
BLOCKING, WAITING = "blocking", "waiting"


class Timed:
    """An engine around another."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._entered: list[tuple[int, float]] = []
        self._blocking = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def arrivals(self) -> int | None:
        """None in the mode that waits within the step, once the loop has registered the descriptor."""
        return None if self._blocking else self._engine.arrivals

    def configure(self, sampling: Sampling, *, stream: bool) -> None:
        """Read the mode of the next run."""
        self._engine.configure(sampling, stream=stream)
        mode = Path(os.environ[MODE])
        self._blocking = mode.is_file() and mode.read_text() == BLOCKING
        self._entered = []

    def add(self, query: int, prompt: list[int], kind: str = "", reported: int = 0) -> None:
        """Hand a query over, and note when that was done."""
        self._engine.add(query, prompt, kind, reported)
        self._entered.append((query, time.perf_counter()))

    def step(self) -> Step:
        """Wait for the engine core first in the mode that does."""
        if self._blocking:
            select.select([self._engine.arrivals], [], [])
        step: Step = self._engine.step()
        return step

    def counters(self) -> Counters | None:
        """Called when a run begins and ends: write what was noted."""
        Path(os.environ[TIMES]).write_text(json.dumps(self._entered))
        counters: Counters | None = self._engine.counters()
        return counters


if __name__ == "__mp_main__":
    replica.prepare_spawned()
if __name__ == "__main__":
    replica.build_engine = lambda *arguments: Timed(build_engine(*arguments))  # type: ignore[attr-defined]
    replica.main()
