"""Small runs on one replica pool of the real vLLM, with the real LoadGen, in which something goes wrong."""

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
from harness_llm.prepare.demo.stages import Assets
from harness_llm.protocol.mailbox import Mailbox
from harness_llm.protocol.token_store import open_store
from harness_llm.replicas.local import start_pool
from harness_llm.replicas.pool import ReplicaPool
from harness_llm.runs.fingerprint import source_digest
from harness_llm.runs.record import Run, load_run

SAMPLES = 50
TARGETS = """
llama2-70b.Offline.target_qps = 5000
llama2-70b.Server.target_qps = 80
llama2-70b-interactive.Server.target_qps = 80
llama2-70b.SingleStream.target_latency = 100
"""
# FP8 answers as the original does, but for a few.
LIKE = 0.8
PATIENCE_S = 90  # a run that hangs is ended and fails

_started = itertools.count()


@dataclass
class Watcher:
    """Does `act` when the run has answered its first queries, once."""

    act: Callable[[], None] = lambda: None
    acted: bool = False

    def progress(self, body: Mapping[str, Any]) -> None:
        if not self.acted and body.get("done"):
            self.acted = True
            self.act()


class RunKeys:
    """Runs runs on one replica pool."""

    def __init__(self, workspace: Workspace, assets: Assets) -> None:
        self.workspace = workspace
        self.assets = assets
        self.pool: ReplicaPool

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
        options = Options(
            model="demo",
            gpu="cpu",
            round="v6.1",
            division="open",
            category="datacenter",
            scenarios=(scenario,),
            profile="smoke",
            engine="vllm",
            system_name="pytest-box",
            set=sets,
            total_sample_count=samples,
            user_conf=conf,
        )
        request = resolve(options, self.workspace)
        started = dt.datetime(2026, 7, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=number)
        return replace(request, profile=request.profile.model_copy(update={"probe_s": probe_s}), started=started)

    def run(self, request: Request, test: str, watcher: Watcher | None = None, assets: Assets | None = None) -> Run:
        assets = assets or self.assets
        scorer = Scorer(request.benchmark, request.variants, assets)
        bench = ScenarioContext(
            request, request.scenarios[0], assets, scorer, {"harness_llm": source_digest()}, self.pool
        )
        guard = threading.Timer(PATIENCE_S, kill_loadgen)
        guard.start()
        try:
            return execute_run(bench, test, watcher or Watcher())
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

    def replica_client(self, request: Request, generation: int, *, stream: bool = False) -> ReplicaClient:
        config = request.scenarios[0].config
        replica_client = ReplicaClient(
            self.pool.endpoints,
            generation=generation,
            in_flight_limit=None if stream else config.in_flight_limit,
            stream=stream,
            health=HealthMonitor(PATIENCE_S, PATIENCE_S),
            news=Mailbox(),
            report_failed=lambda *_: None,
        )
        replica_client.attach("pytest", config.sampling)
        replica_client.load(open_store(self.assets.store("performance")))
        return replica_client


@contextmanager
def started_cells(workspace: Workspace, assets: Assets, replicas: int) -> Iterator[RunKeys]:
    run_keys = RunKeys(workspace, assets)
    sets = ("harness_config.warm_up_tokens=4", f"harness_config.replicas={replicas}")
    run_keys.pool = start_pool(
        run_keys.request("Offline", sets=sets).scenarios[0].config,
        engine="vllm",
        checkpoint=assets.checkpoint,
        calibration=assets.calibration,
        logs=workspace.logs / "pool",
        cache=workspace.cache,
        tell=lambda _: None,
    )
    try:
        yield run_keys
    finally:
        run_keys.pool.stop()


def loadgen_processes() -> list[psutil.Process]:
    living = [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
    return [p for p in living if "harness_llm.loadgen.process" in p.cmdline()]


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
