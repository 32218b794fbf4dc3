"""Runs of the real LoadGen on a replica pool, in which a test may break something."""

import datetime as dt
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import psutil
import pytest
from waiting import living_children, no_child_remains

from harness_llm.config.assets import Assets
from harness_llm.config.options import Options
from harness_llm.config.plan import resolve
from harness_llm.config.request import Request
from harness_llm.errors import HarnessError
from harness_llm.evaluate.run_result import Scorer
from harness_llm.loadgen.health import HealthMonitor
from harness_llm.loadgen.logs import Answer
from harness_llm.loadgen.replica_client import ReplicaClient
from harness_llm.paths import Workspace
from harness_llm.pipeline.run import ScenarioContext, execute_run
from harness_llm.pipeline.run_monitor import Watcher
from harness_llm.protocol.mailbox import Mailbox
from harness_llm.protocol.token_store import open_store
from harness_llm.replicas.local import Launcher, launch, start_pool
from harness_llm.replicas.pool import ReplicaPool
from harness_llm.replicas.start_progress import StartStatus
from harness_llm.runs.fingerprint import SOURCE
from harness_llm.runs.program_source import MEASURING
from harness_llm.runs.record import Run, load_run

# The share of answers of the FP8 checkpoint that are those of the original.
ALIKE = 0.8
PATIENCE_S = 300  # a run that does not end is killed, and the test fails
TARGETS = """
llama2-70b.Offline.target_qps = 500
llama2-70b.Server.target_qps = 60
llama2-70b-interactive.Server.target_qps = 60
llama2-70b.SingleStream.target_latency = 100
"""

_started = itertools.count()


@dataclass
class OnFirstAnswer:
    """Calls `act` once, after the run's first answers."""

    act: Callable[[], object] = lambda: None
    acted: bool = False

    def progress(self, body: Mapping[str, Any]) -> None:
        if not self.acted and body.get("done"):
            self.acted = True
            self.act()


class Runs:
    """Runs in one workspace, over `samples` prompts unless a test asks for others."""

    def __init__(
        self,
        workspace: Workspace,
        assets: Assets,
        engine: str,
        *sets: str,
        samples: int,
        scorer: type[Scorer] = Scorer,
    ) -> None:
        self.workspace, self.assets, self.engine = workspace, assets, engine
        self.starts: list[StartStatus] = []
        self._sets, self._samples, self._scorer = sets, samples, scorer
        (workspace.user_confs / "user_cpu.conf").write_text(TARGETS)

    def request(self, scenario: str, *sets: str, samples: int | None = None) -> Request:
        options = Options(
            model="demo",
            gpu="cpu",
            scenarios=(scenario,),
            profile="smoke",
            engine=self.engine,
            system_name="pytest-box",
            total_sample_count=samples or self._samples,
            set=(*self._sets, *sets),
        )
        started = dt.datetime(2026, 7, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=next(_started))
        return replace(resolve(options, self.workspace), started=started)

    @contextmanager
    def pool(self, request: Request, launcher: Launcher = launch) -> Iterator[ReplicaPool]:
        """A replica pool with the settings of `request`; no process of it outlives this."""
        with no_child_remains(), self._pool(request, launcher) as pool:
            yield pool

    @contextmanager
    def _pool(self, request: Request, launcher: Launcher) -> Iterator[ReplicaPool]:
        pool = start_pool(
            request.scenarios[0].config,
            engine=self.engine,
            checkpoint=self.assets.checkpoint,
            calibration=self.assets.calibration,
            logs=request.log_folder,
            cache=self.workspace.cache,
            report=self.starts.append,
            launcher=launcher,
        )
        try:
            yield pool
        finally:
            pool.stop()

    def bench(self, request: Request, pool: ReplicaPool) -> ScenarioContext:
        scorer = self._scorer(request.benchmark, request.variants, self.assets)
        facts = {SOURCE: MEASURING.at_start}
        return ScenarioContext(request, request.scenarios[0], self.assets, scorer, facts, pool)

    def run(
        self,
        request: Request,
        pool: ReplicaPool,
        test: str = "performance",
        watcher: Watcher | None = None,
    ) -> Run:
        guard = threading.Timer(PATIENCE_S, kill_loadgen)
        guard.start()
        try:
            return execute_run(self.bench(request, pool), test, watcher or OnFirstAnswer())
        finally:
            guard.cancel()

    def fails(
        self,
        error: type[HarnessError],
        request: Request,
        pool: ReplicaPool,
        test: str = "performance",
        watcher: Watcher | None = None,
    ) -> tuple[HarnessError, Run]:
        """The error that a run ends with, and the run as it was recorded."""
        with pytest.raises(error) as raised:
            self.run(request, pool, test, watcher)
        assert not loadgen_processes()
        return raised.value, load_run(request.log_folder / request.scenarios[0].scenario / test)

    def replica_client(self, request: Request, pool: ReplicaPool, generation: int, *, stream: bool) -> ReplicaClient:
        """LoadGen's side of the connection to the replicas, in this process."""
        config = request.scenarios[0].config
        replica_client = ReplicaClient(
            pool.endpoints,
            generation=generation,
            in_flight_limit=None if stream else config.in_flight_limit,
            stream=stream,
            health=HealthMonitor(PATIENCE_S, PATIENCE_S),
            pool_events=Mailbox(),
            report_failed=lambda *_: None,
        )
        replica_client.attach("pytest", config.sampling, open_store(self.assets.store("performance")))
        return replica_client


def loadgen_processes() -> list[psutil.Process]:
    return [child for child in living_children() if "harness_llm.loadgen.process" in child.cmdline()]


def kill_loadgen() -> None:
    for process in loadgen_processes():
        process.kill()


def reference_answers(assets: Assets) -> list[list[int]]:
    assert assets.reference
    answers: list[list[int]] = json.loads((assets.reference.parent / "answers.json").read_text())
    return answers


def likeness(found: Mapping[int, list[int]], assets: Assets) -> float:
    """The share of answers by sample that are those of the original checkpoint."""
    right = reference_answers(assets)
    return float(np.mean([right[index] == ids for index, ids in found.items()]))


def by_sample(answers: list[Answer]) -> dict[int, list[int]]:
    return {answer.qsl_idx: answer.ids.tolist() for answer in answers}
