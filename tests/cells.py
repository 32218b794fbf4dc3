"""Small cells on one fleet of the real vLLM, with the real LoadGen, in which something goes wrong."""

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

from harness_llm.cell import Bench, run_cell
from harness_llm.choices import Choices
from harness_llm.datasets.store import open_store
from harness_llm.demo.assets import Assets
from harness_llm.errors import HarnessError
from harness_llm.fleet.dispatcher import Dispatcher
from harness_llm.fleet.fleet import Fleet
from harness_llm.fleet.liveness import Liveness
from harness_llm.fleet.local import start_fleet
from harness_llm.loadgen.logs import Answer
from harness_llm.mailbox import Mailbox
from harness_llm.outcome import Scorer
from harness_llm.request import Request, resolve
from harness_llm.runs import Run, load_run
from harness_llm.subject import source_digest
from harness_llm.workspace import Workspace

SAMPLES = 50
TARGETS = """
llama2-70b.Offline.target_qps = 5000
llama2-70b.Server.target_qps = 80
llama2-70b-interactive.Server.target_qps = 80
llama2-70b.SingleStream.target_latency = 100
"""
# FP8 answers as the original does, but for a few.
LIKE = 0.8
PATIENCE_S = 90  # a cell that hangs is ended and fails

_started = itertools.count()


@dataclass
class Watcher:
    """Does `act` when the cell has answered its first queries, once."""

    act: Callable[[], None] = lambda: None
    acted: bool = False

    def progress(self, body: Mapping[str, Any]) -> None:
        if not self.acted and body.get("done"):
            self.acted = True
            self.act()


class Cells:
    """Runs cells on one fleet."""

    def __init__(self, workspace: Workspace, assets: Assets) -> None:
        self.workspace = workspace
        self.assets = assets
        self.fleet: Fleet

    def request(
        self,
        scenario: str,
        *,
        samples: int = SAMPLES,
        targets: str = TARGETS,
        sets: tuple[str, ...] = (),
        probe_s: float = 0,
    ) -> Request:
        number = next(_started)
        conf = self.workspace.user_confs / f"user_{number}.conf"
        conf.write_text(targets)
        choices = Choices(
            model="demo",
            gpu="cpu",
            round="v6.1",
            division="open",
            category="datacenter",
            scenarios=(scenario,),
            profile="smoke",
            engine="vllm",
            submitter="",
            system="pytest-box",
            sets=sets,
            sample_count=samples,
            user_conf=conf,
        )
        request = resolve(choices, self.workspace)
        started = dt.datetime(2026, 7, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=number)
        return replace(request, profile=request.profile.model_copy(update={"probe_s": probe_s}), started=started)

    def run(self, request: Request, test: str, watcher: Watcher | None = None, assets: Assets | None = None) -> Run:
        assets = assets or self.assets
        scorer = Scorer(request.benchmark, request.variants, assets)
        bench = Bench(request, request.scenarios[0], assets, scorer, {"harness_llm": source_digest()}, self.fleet)
        guard = threading.Timer(PATIENCE_S, kill_loadgen)
        guard.start()
        try:
            return run_cell(bench, test, watcher or Watcher())
        finally:
            guard.cancel()

    def fails(
        self,
        error: type[HarnessError],
        request: Request,
        test: str,
        watcher: Watcher | None = None,
        assets: Assets | None = None,
    ) -> tuple[HarnessError, Run]:
        """The error that a run ends with, and its record."""
        with pytest.raises(error) as raised:
            self.run(request, test, watcher, assets)
        assert not loadgen_processes()
        return raised.value, load_run(request.log_folder / request.scenarios[0].scenario / test)

    def dispatcher(self, request: Request, generation: int, *, stream: bool = False) -> Dispatcher:
        config = request.scenarios[0].config
        dispatcher = Dispatcher(
            self.fleet.endpoints,
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


@contextmanager
def started_cells(workspace: Workspace, assets: Assets, replicas: int) -> Iterator[Cells]:
    cells = Cells(workspace, assets)
    sets = ("harness_config.warm_up_tokens=4", f"harness_config.replicas={replicas}")
    cells.fleet = start_fleet(
        cells.request("Offline", sets=sets).scenarios[0].config,
        engine="vllm",
        checkpoint=assets.checkpoint,
        calibration=assets.calibration,
        logs=workspace.logs / "fleet",
        cache=workspace.cache,
        tell=lambda _: None,
    )
    try:
        yield cells
    finally:
        cells.fleet.stop()


def loadgen_processes() -> list[psutil.Process]:
    living = [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
    return [p for p in living if "harness_llm.loadgen.client" in p.cmdline()]


def kill_loadgen() -> None:
    (process,) = loadgen_processes()
    process.kill()


def reference_answers(assets: Assets) -> list[list[int]]:
    answers: list[list[int]] = json.loads((assets.reference.parent / "answers.json").read_text())
    return answers


def likeness(found: Mapping[int, list[int]], assets: Assets) -> float:
    """The share of answers by sample that are those of the original checkpoint."""
    right = reference_answers(assets)
    return float(np.mean([right[index] == ids for index, ids in found.items()]))


def by_sample(answers: list[Answer]) -> dict[int, list[int]]:
    return {answer.qsl_idx: answer.ids.tolist() for answer in answers}
