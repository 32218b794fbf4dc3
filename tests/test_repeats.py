"""Repeats of failed runs: a submission of the demo whose replica is killed, and single scenarios.

The servers have no model; the answer to a prompt follows from the prompt.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from http_runs import BEFORE, SAMPLES, BreaksWhenHeld, Unscored, kill, make_runs, own_server
from live_runs import Runs
from real_loadgen import needs_loadgen
from rich.console import Console

from harness_llm.cli.submit_command import submit
from harness_llm.config.assets import Assets
from harness_llm.config.options import Options
from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.errors import HarnessError, ProcessFailed, RunFailed
from harness_llm.evaluate.run_result import Scorer
from harness_llm.hardware import device_lock
from harness_llm.paths import ROOT_VARIABLE, Workspace
from harness_llm.pipeline.attempts import MAX_REPEATS, RunAttempts
from harness_llm.pipeline.panel import Panel, RunView
from harness_llm.pipeline.run import ScenarioContext
from harness_llm.pipeline.submit import Pipeline
from harness_llm.replicas.pool import ReplicaPool
from harness_llm.runs.fingerprint import SOURCE
from harness_llm.runs.program_source import MEASURING
from harness_llm.runs.record import Run, State, find_runs

pytestmark = [needs_loadgen, pytest.mark.processes(seconds=50)]

TRIES = 1 + MAX_REPEATS


# A submission


SYSTEM = "night-box"
TARGETS = "llama2-70b.Offline.target_qps = 5000\nllama2-70b.Server.target_qps = 350\n"
TESTS = ("performance", "accuracy", "TEST06")
SCENARIOS = ("Offline", "Server")
BAD = "Server accuracy"


class KillingPanel(Panel):
    """Kills the replica at the start of a run, `often` times for each run.

    Attributes:
        pool: of the run that starts next.
        begun: how often each run was started.
    """

    def __init__(self, often: Callable[[str], int]) -> None:
        super().__init__(Console(stderr=True, width=200))
        self._often = often
        self.pool: ReplicaPool | None = None
        self.begun: dict[str, int] = {}

    def begin(self, view: RunView) -> None:
        self.begun[view.name] = self.begun.get(view.name, 0) + 1
        if self.begun[view.name] <= self._often(view.name):
            assert self.pool
            kill(self.pool.replicas[0])
        super().begin(view)


@pytest.fixture(autouse=True)
def pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a KillingPanel the pool of each run."""
    execute = Pipeline.execute

    def told(pipeline: Pipeline, context: ScenarioContext, test: str) -> Run:
        if isinstance(pipeline.panel, KillingPanel):
            pipeline.panel.pool = context.pool
        return execute(pipeline, context, test)

    monkeypatch.setattr(Pipeline, "execute", told)


@pytest.fixture
def workspace(new_workspace: Callable[[], Workspace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace, with device locks of its own."""
    monkeypatch.setattr(device_lock, "make_locks", lambda: tmp_path)
    workspace = new_workspace()
    (workspace.user_confs / "user_cpu.conf").write_text(TARGETS)
    monkeypatch.setenv(ROOT_VARIABLE, str(workspace.root))
    return workspace


def options(**changes: Any) -> Options:
    sets = (own_server(), "harness_config.warm_up_tokens=4", "llm_config.max_num_seqs=64")
    return Options(model="demo", gpu="cpu", engine="openai", company="Acme", system_name=SYSTEM, set=sets, **changes)


def states(workspace: Workspace) -> dict[str, list[State]]:
    found: dict[str, list[State]] = {}
    for run in find_runs(workspace.logs, SYSTEM):
        found.setdefault(f"{run.run_key.scenario} {run.run_key.test}", []).append(run.state)
    return found


@pytest.mark.slow
def test_submission_with_a_killed_replica_completes_by_itself(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """First the replica is killed once in each run, and in one run each time; then it is killed once in that run."""
    with pytest.raises(RunFailed, match="not every run is VALID") as raised:
        submit(options(), KillingPanel(lambda name: TRIES if name == BAD else 1), dry_run=False)
    assert raised.value.exit_code == 4
    once, always = [State.FAILED, State.VALID], [State.FAILED] * TRIES
    names = [f"{scenario} {test}" for scenario in SCENARIOS for test in TESTS]
    assert states(workspace) == {name: always if name == BAD else once for name in names}
    assert "1 of 6 runs" in raised.value.found
    assert "demo/Server/accuracy  FAILED  3         replica-0 failed: exit by signal 9" in raised.value.found
    assert "harness-llm submit --model demo" in raised.value.hint
    assert raised.value.hint.endswith("--company Acme")
    assert not list(workspace.submission.glob("inference*"))

    killing = KillingPanel(lambda _: 1)
    submit(options(), killing, dry_run=False)
    assert killing.begun == {BAD: 2}
    assert states(workspace)[BAD] == [*always, *once]
    tree, archive = map(Path, capsys.readouterr().out.split())
    assert tree.is_dir()
    assert archive.is_file()


# Scenarios


class HttpPipeline(Pipeline):
    """Answers of a server without a model have no score, and its checkpoint has no weights."""

    def scorer(self, assets: Assets) -> Scorer:
        return Unscored(self.request.benchmark, self.request.variants, assets)

    def fingerprint(self, plan: ScenarioPlan, assets: Assets) -> dict[str, Any]:
        return {SOURCE: MEASURING.at_start}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return make_runs(tmp_path_factory.mktemp("repeats"))


def made(runs: Runs, request: Request, *tests: str, pipeline: type[Pipeline] = HttpPipeline) -> list[RunAttempts]:
    one = pipeline(request, Panel(Console(stderr=True)), machine={})
    return one.scenario_runs(request.scenarios[0], runs.assets).run(tests)


def outcomes(attempts: RunAttempts) -> list[State | None]:
    return [attempt.run and attempt.run.state for attempt in attempts.attempts]


def test_run_whose_engine_ends_each_time_is_repeated_twice_before_the_next_test(runs: Runs) -> None:
    request = runs.request("Server", own_server("--behave", "killed", "--after", BEFORE + SAMPLES // 2))
    failed, other = made(runs, request, "performance", "accuracy")
    assert outcomes(failed) == outcomes(other) == [State.FAILED] * TRIES
    assert len({attempt.run.path for attempt in failed.attempts if attempt.run}) == TRIES
    assert "the server ended: exit by signal 9" in failed.cause
    assert failed.place.endswith("replica-0.log")
    assert failed.exit_code == 4


def test_engine_that_does_not_start_is_tried_again_and_blocks_its_scenario(runs: Runs) -> None:
    command = "server_config.command='{python} -c \"raise SystemExit(3)\" {port}'"
    failed, blocked = made(runs, runs.request("Offline", command), "performance", "accuracy")
    assert outcomes(failed) == [None] * TRIES
    assert isinstance(failed.error, ProcessFailed)
    assert failed.cause == f"the server did not start: the server ended: exit code 3; its log: {failed.place}"
    assert blocked.attempts == ()
    assert blocked.cause.startswith("not attempted: the server did not start")


def test_run_that_fails_for_another_reason_is_not_repeated(runs: Runs) -> None:
    """Its engine is stopped, so that the next test has a new one."""
    request = runs.request("Server", own_server(), "sampling.max_tokens=1")
    failed, other = made(runs, request, "performance", "accuracy")
    assert outcomes(failed) == outcomes(other) == [State.FAILED]
    assert "fewer than two tokens" in failed.cause


def test_stop_on_failure_ends_the_command_at_the_first_failure(runs: Runs) -> None:
    request = runs.request("Server", own_server("--behave", "killed", "--after", BEFORE + SAMPLES // 2))
    stopping = replace(request, options=replace(request.options, stop_on_failure=True))
    with pytest.raises(HarnessError, match="replica-0 failed") as raised:
        made(runs, stopping, "performance", "accuracy")
    assert raised.value.exit_code == 4
    folders = [path.name for path in (request.log_folder / "Server").iterdir() if path.is_dir()]
    assert folders == ["performance"]


def test_performance_run_with_a_failed_replica_is_degraded_and_repeated_on_the_same_pool(runs: Runs) -> None:
    server = own_server("--behave", "pauses", "--after", BEFORE)
    request = runs.request("Server", server, "harness_config.replicas=2")
    pools: list[Any] = []

    class Breaking(HttpPipeline):
        def execute(self, context: ScenarioContext, test: str) -> Run:
            pools.append(context.pool)
            if len(pools) == 1:
                breaks = BreaksWhenHeld(kill, context.pool.replicas[1])
                self.panel.progress = breaks.progress  # type: ignore[method-assign]
            return super().execute(context, test)

    [attempts] = made(runs, request, "performance", pipeline=Breaking)
    first, last = [attempt.run for attempt in attempts.attempts]
    assert first is not None
    assert last is not None
    assert first.state is State.DEGRADED
    assert first.reasons[0].startswith("replica-1 failed (exit by signal 9 (SIGKILL)")
    assert last.state in {State.VALID, State.INVALID}  # LoadGen's early stopping needs more queries
    assert not [reason for reason in last.reasons if "replica" in reason]
    assert pools[0] is pools[1]
