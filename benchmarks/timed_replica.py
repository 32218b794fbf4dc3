"""A replica that records when each query enters its engine; a mode file selects how it waits.

Run like harness_llm.replicas.replica. If the file named by MODE contains `blocking`, the engine waits within its step;
otherwise, the replica's loop waits for messages and outputs. The file named by TIMES receives, per run, a list of
[query, time.perf_counter()].
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
    """Wrapper of an engine."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._entered: list[tuple[int, float]] = []
        self._blocking = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def arrivals(self) -> int | None:
        """None in `blocking` mode, once the loop has registered the descriptor."""
        return None if self._blocking else self._engine.arrivals

    def configure(self, sampling: Sampling, *, stream: bool) -> None:
        """Read the mode of the next run."""
        self._engine.configure(sampling, stream=stream)
        mode = Path(os.environ[MODE])
        self._blocking = mode.is_file() and mode.read_text() == BLOCKING
        self._entered = []

    def add(self, query: int, prompt: list[int], kind: str = "", reported: int = 0) -> None:
        """Add a query and record the time."""
        self._engine.add(query, prompt, kind, reported)
        self._entered.append((query, time.perf_counter()))

    def step(self) -> Step:
        """Make a step; in `blocking` mode, wait for the engine core first."""
        if self._blocking:
            select.select([self._engine.arrivals], [], [])
        step: Step = self._engine.step()
        return step

    def counters(self) -> Counters | None:
        """Write the recorded times; called when a run begins and ends."""
        Path(os.environ[TIMES]).write_text(json.dumps(self._entered))
        counters: Counters | None = self._engine.counters()
        return counters


if __name__ == "__mp_main__":
    replica.prepare_spawned()
if __name__ == "__main__":
    replica.build_engine = lambda *arguments: Timed(build_engine(*arguments))  # type: ignore[attr-defined]
    replica.main()
