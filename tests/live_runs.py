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

from harness_llm.assets import Assets
from harness_llm.cell import Bench, run_cell
from harness_llm.choices import choose
from harness_llm.datasets.store import open_store
from harness_llm.errors import HarnessError
from harness_llm.fleet.dispatcher import Dispatcher
from harness_llm.fleet.fleet import Fleet
from harness_llm.fleet.liveness import Liveness
from harness_llm.fleet.local import Launcher, launch, start_fleet
from harness_llm.loadgen.logs import Answer
from harness_llm.mailbox import Mailbox
from harness_llm.outcome import Scorer
from harness_llm.request import Request, resolve
from harness_llm.runs import Run, load_run
from harness_llm.subject import source_digest
from harness_llm.supervision import Watcher
from harness_llm.workspace import Workspace

# The share of answers of the FP8 checkpoint that are those of the original.
ALIKE = 0.8
PATIENCE_S = 120  # a run that does not end is killed, and the test fails
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
        self._sets, self._samples, self._scorer = sets, samples, scorer
        (workspace.user_confs / "user_cpu.conf").write_text(TARGETS)

    def request(self, scenario: str, *sets: str, samples: int | None = None) -> Request:
        words = {
            "model": "demo",
            "gpu": "cpu",
            "scenarios": scenario,
            "profile": "smoke",
            "engine": self.engine,
            "system_name": "pytest-box",
            "total_sample_count": samples or self._samples,
            "set_": [*self._sets, *sets],
        }
        started = dt.datetime(2026, 7, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=next(_started))
        return replace(resolve(choose(words), self.workspace), started=started)

    @contextmanager
    def pool(self, request: Request, launcher: Launcher = launch) -> Iterator[Fleet]:
        """A replica pool with the settings of `request`; no process of it outlives this."""
        before = {child.pid for child in living_children()}
        pool = start_fleet(
            request.scenarios[0].config,
            engine=self.engine,
            checkpoint=self.assets.checkpoint,
            calibration=self.assets.calibration,
            logs=request.log_folder,
            cache=self.workspace.cache,
            tell=lambda _: None,
            launcher=launcher,
        )
        try:
            yield pool
        finally:
            pool.stop()
            assert [child for child in living_children() if child.pid not in before] == []

    def bench(self, request: Request, pool: Fleet) -> Bench:
        scorer = self._scorer(request.benchmark, request.variants, self.assets)
        return Bench(request, request.scenarios[0], self.assets, scorer, {"harness_llm": source_digest()}, pool)

    def run(
        self,
        request: Request,
        pool: Fleet,
        test: str = "performance",
        watcher: Watcher | None = None,
    ) -> Run:
        guard = threading.Timer(PATIENCE_S, kill_loadgen)
        guard.start()
        try:
            return run_cell(self.bench(request, pool), test, watcher or OnFirstAnswer())
        finally:
            guard.cancel()

    def fails(
        self,
        error: type[HarnessError],
        request: Request,
        pool: Fleet,
        test: str = "performance",
        watcher: Watcher | None = None,
    ) -> tuple[HarnessError, Run]:
        """The error that a run ends with, and the run as it was recorded."""
        with pytest.raises(error) as raised:
            self.run(request, pool, test, watcher)
        assert not loadgen_processes()
        return raised.value, load_run(request.log_folder / request.scenarios[0].scenario / test)

    def dispatcher(self, request: Request, pool: Fleet, generation: int, *, stream: bool) -> Dispatcher:
        """LoadGen's side of the connection to the replicas, in this process."""
        config = request.scenarios[0].config
        dispatcher = Dispatcher(
            pool.endpoints,
            generation=generation,
            credit=None if stream else config.credit,
            stream=stream,
            liveness=Liveness(PATIENCE_S, PATIENCE_S),
            news=Mailbox(),
            tell_lost=lambda *_: None,
        )
        dispatcher.attach("pytest", config.sampling)
        dispatcher.load(open_store(self.assets.store("performance")))
        return dispatcher


def living_children() -> list[psutil.Process]:
    """The child processes that have not ended; one that ends meanwhile has no state."""
    return [child for child in psutil.Process().children() if is_alive(child)]


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.NoSuchProcess:
        return False


def loadgen_processes() -> list[psutil.Process]:
    return [child for child in living_children() if "harness_llm.loadgen.client" in child.cmdline()]


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
