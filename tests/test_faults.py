"""What goes wrong in a run, with the real vLLM and the real LoadGen: one fleet, and a small cell for each fault."""

import datetime as dt
import itertools
import json
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from harness_llm.cell import Bench, run_cell
from harness_llm.choices import Choices
from harness_llm.datasets.store import open_store, write_store
from harness_llm.demo.assets import Assets
from harness_llm.errors import ConfigError, HarnessError, RunFailed
from harness_llm.fleet.dispatcher import Dispatcher
from harness_llm.fleet.fleet import Fleet
from harness_llm.fleet.liveness import Liveness
from harness_llm.fleet.local import start_fleet
from harness_llm.loadgen.logs import ACCURACY, DETAIL, Answer, parse_detail, read_accuracy_log
from harness_llm.loadgen.probe import judge_probe
from harness_llm.mailbox import Mailbox
from harness_llm.outcome import Scorer
from harness_llm.plan import issued
from harness_llm.request import Request, resolve
from harness_llm.runs import Run, State, load_run
from harness_llm.subject import source_digest
from harness_llm.workspace import Workspace

pytestmark = pytest.mark.engine

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

    def dispatcher(self, request: Request, generation: int) -> Dispatcher:
        config = request.scenarios[0].config
        dispatcher = Dispatcher(
            self.fleet.endpoints,
            generation=generation,
            credit=config.credit,
            stream=False,
            liveness=Liveness(PATIENCE_S, PATIENCE_S),
            news=Mailbox(),
            tell_lost=lambda endpoint, cause, _: pytest.fail(f"{endpoint.address}: {cause}"),
        )
        dispatcher.attach("pytest", config.sampling)
        dispatcher.load(open_store(self.assets.store("performance")))
        return dispatcher


@pytest.fixture(scope="module")
def cells(workspace: Workspace, assets: Assets) -> Iterator[Cells]:
    cells = Cells(workspace, assets)
    cells.fleet = start_fleet(
        cells.request("Offline", sets=("harness_config.warm_up_samples=32",)).scenarios[0].config,
        engine="vllm",
        checkpoint=assets.checkpoint,
        calibration=assets.calibration,
        logs=workspace.logs / "fleet",
        cache=workspace.cache,
        tell=lambda _: None,
    )
    yield cells
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


@pytest.mark.parametrize("scenario", ["Server", "SingleStream"])
def test_every_first_token_begins_its_answer(cells: Cells, scenario: str) -> None:
    run = cells.run(cells.request(scenario), "accuracy")
    assert run.state is State.VALID
    answers = read_accuracy_log(run.path / ACCURACY)
    assert sorted(a.qsl_idx for a in answers) == list(range(SAMPLES))
    for answer in answers:
        assert answer.first is not None
        assert answer.first.tolist() == answer.ids[:1].tolist()
        assert answer.token_count == len(answer.ids)
    assert likeness(by_sample(answers), cells.assets) > LIKE


@pytest.mark.parametrize(("scenario", "limits"), [("SingleStream", (2000, 200)), ("Interactive", (450, 40))])
def test_scenarios_beside_offline_and_server(cells: Cells, scenario: str, limits: tuple[float, float]) -> None:
    request = cells.request(scenario)
    run = cells.run(request, "performance")
    assert run.record
    log = parse_detail(run.path / DETAIL)
    assert log.errors == []
    assert log.query_count == issued(request.scenarios[0].load, "performance")
    assert (log.requested_ttft_ms, log.requested_tpot_ms) == limits
    assert log.p99_ttft_ms
    assert log.p99_ttft_ms > 0
    # Fewer than 460 queries prove no 99th percentile, and a busy machine may miss a limit: both are LoadGen's to say.
    assert all(reason.startswith("LoadGen says INVALID") for reason in run.reasons)
    assert run.record.metrics["samples_per_second"] == log.samples_per_second > 0


def test_a_killed_loadgen_fails_its_cell_alone(cells: Cells) -> None:
    watcher = Watcher(kill_loadgen)
    error, run = cells.fails(RunFailed, cells.request("Offline", samples=2048), "performance", watcher)
    assert watcher.acted
    assert error.exit_code == 4
    assert "exit code -9" in error.found
    assert run.state is State.FAILED
    assert "exit code -9" in run.reasons[0]

    after = cells.run(cells.request("Offline"), "accuracy")
    assert after.state is State.VALID
    assert likeness(by_sample(read_accuracy_log(after.path / ACCURACY)), cells.assets) > LIKE


def test_late_answers_reach_nobody(cells: Cells) -> None:
    """A cell that is over, but whose LoadGen process still lives, and the next one use the same query ids."""
    request = cells.request("Offline")
    old = cells.dispatcher(request, generation=1001)
    old.offer(range(SAMPLES), range(SAMPLES))
    old.feed()
    new = cells.dispatcher(request, generation=1002)
    old.harvest(0)
    old.offer(range(SAMPLES, SAMPLES + 20), range(SAMPLES, SAMPLES + 20))
    old.feed()
    new.offer(range(SAMPLES), range(1000, 1000 + SAMPLES))
    new.feed()
    try:
        answers: dict[int, list[int]] = {}
        deadline = time.monotonic() + 60
        while new.in_flight:
            answers |= {answer.query + 1000: answer.ids.tolist() for answer in new.harvest(100).finished}
            assert time.monotonic() < deadline
        assert len(answers) == SAMPLES
        assert likeness(answers, cells.assets) > LIKE
        assert new.harvest(1000).finished == []
        assert old.harvest(0).finished == []
    finally:
        old.close()
        new.close()


def test_a_prompt_that_the_engine_refuses(cells: Cells, tmp_path: Path) -> None:
    write_store(tmp_path / "long", [[5] * 300] * SAMPLES, ["text"] * SAMPLES)
    assets = replace(cells.assets, stores={"evaluation": tmp_path / "long"})
    error, run = cells.fails(RunFailed, cells.request("Offline"), "performance", assets=assets)
    assert error.exit_code == 4
    assert error.what == "a replica refused a query"
    assert "256" in error.found  # max_model_len
    assert run.state is State.FAILED
    assert "256" in run.reasons[0]


@pytest.mark.parametrize("scenario", ["Offline", "Server"])
def test_answers_that_loadgen_would_not_count(cells: Cells, scenario: str) -> None:
    request = cells.request(scenario, sets=("sampling.max_tokens=1",))
    error, run = cells.fails(RunFailed, request, "performance")
    assert error.expected == "at least 2 token ids"
    assert run.state is State.FAILED
    assert "fewer than two tokens" in run.reasons[0]


def test_seeds_of_another_round(cells: Cells) -> None:
    request = cells.request("Offline")
    loadgen = request.round.loadgen
    seeds = loadgen.seeds | {"qsl_rng_seed": 2465351861681999779}
    other = request.round.model_copy(update={"loadgen": loadgen.model_copy(update={"seeds": seeds})})
    error, run = cells.fails(ConfigError, replace(request, round=other), "performance")
    assert error.exit_code == 2
    assert error.where == "qsl_rng_seed"
    assert "2465351861681999779" in error.expected
    assert run.state is State.FAILED
    assert not (run.path / DETAIL).exists(), "LoadGen was started"


@pytest.mark.parametrize(
    ("scenario", "target", "key"),
    [
        ("Server", "llama2-70b.Server.target_qps = 100000", "llama2-70b.Server.target_qps"),
        ("Offline", "llama2-70b.Offline.target_qps = 1", "llama2-70b.Offline.target_qps"),
        ("SingleStream", "llama2-70b.SingleStream.target_latency = 900", "llama2-70b.SingleStream.target_latency"),
    ],
)
def test_a_target_that_cannot_be_met(cells: Cells, scenario: str, target: str, key: str) -> None:
    request = cells.request(scenario, samples=1, targets=target, probe_s=6)
    run = cells.run(request, "performance")
    assert run.state is State.INVALID
    reason = run.reasons[0]
    assert f"hint: set {key} = " in reason
    assert not (run.path / DETAIL).exists(), "LoadGen was started"

    rate = re.search(r"([\d.]+) (?:samples|queries)/s(?: in the probe| last)", reason)
    assert rate
    advised = cells.request(scenario, samples=1, targets=reason.partition("hint: set ")[2])
    judge_probe(advised.scenarios[0].load, float(rate[1]), key)


def test_a_killed_replica_ends_the_cell(cells: Cells) -> None:
    """The last test of this fleet."""
    replica = cells.fleet.replicas[0]
    killed: list[float] = []

    def kill() -> None:
        replica.process.send_signal(signal.SIGKILL)
        killed.append(time.monotonic())

    error, run = cells.fails(RunFailed, cells.request("Offline", samples=2048), "performance", Watcher(kill))
    assert time.monotonic() - killed[0] < 10
    assert error.exit_code == 4
    assert error.where == str(replica.log)
    assert "exit code -9" in error.found
    assert replica.last_lines() in error.found
    assert run.state is State.FAILED
    cells.fleet.stop()
    assert not cells.fleet.folder.exists()
