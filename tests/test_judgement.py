"""Runs whose scoring failed: their complete logs are judged again, without a new run."""

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from http_runs import Unscored, make_runs, own_server
from live_runs import Runs
from real_loadgen import needs_loadgen
from rich.console import Console

from harness_llm.config.assets import Assets
from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.errors import ConfigError, EnvironmentMissing, RunFailed
from harness_llm.evaluate.run_result import RunResult, Scorer
from harness_llm.hardware import device_lock
from harness_llm.loadgen.logs import DETAIL, parse_detail
from harness_llm.pipeline import judgement
from harness_llm.pipeline.attempts import RunAttempts
from harness_llm.pipeline.judgement import judged_by
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.run import ScenarioContext
from harness_llm.pipeline.scenario_runs import later
from harness_llm.pipeline.submit import Pipeline
from harness_llm.runs.fingerprint import SOURCE
from harness_llm.runs.program_source import MEASURING
from harness_llm.runs.record import Run, State, find_runs
from harness_llm.runs.stored_source import present_source, read_stored

pytestmark = [needs_loadgen, pytest.mark.processes(seconds=50)]

NO_PACKAGE = EnvironmentMissing("missing packages of the official scripts", hint="make graders")


class Submission(Pipeline):
    """A pipeline over servers without a model; its assets are made.

    Attributes:
        error: raised by the scoring.
        verdict: of the scoring; None for that of LoadGen's log.
        contexts: those of all runs.
    """

    made_assets: Assets
    contexts: list[ScenarioContext]
    error: BaseException | None = None
    verdict: RunResult | None = None
    settings = "first"

    def unprepared(self) -> list[str]:
        return []

    def assets(self) -> Assets:
        return self.made_assets

    def _prepare(self) -> Assets:
        return self.made_assets

    def fingerprint(self, plan: ScenarioPlan, assets: Assets) -> dict[str, Any]:
        return {SOURCE: MEASURING.at_start, "settings": self.settings}

    def scorer(self, assets: Assets) -> Scorer:
        return Failing(self.request.benchmark, self.request.variants, assets, self.error, self.verdict)

    def execute(self, context: ScenarioContext, test: str) -> Run:
        self.contexts.append(context)
        return super().execute(context, test)


@dataclass(frozen=True)
class Failing(Unscored):
    """Raises `error`, if there is one; returns `verdict`, if there is one."""

    error: BaseException | None = None
    verdict: RunResult | None = None

    def judge(self, run: Path, samples: int, *, enforce: bool) -> RunResult:
        if self.error:
            raise self.error
        return self.verdict or super().judge(run, samples, enforce=enforce)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return make_runs(tmp_path_factory.mktemp("judged"))


class Changing:
    """A part of the source whose digest has these values, one after the other, and then keeps the last one."""

    def __init__(self, *digests: str, at_start: str = "of the start") -> None:
        self.at_start, self._digests = at_start, list(digests)

    def digest(self) -> str:
        return self._digests.pop(0) if len(self._digests) > 1 else self._digests[0]


Submit = Callable[..., tuple[Submission, list[RunAttempts]]]


@pytest.fixture
def submit(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submit:
    """Make the missing runs of a system of its own; each call is a command that starts later."""
    monkeypatch.setattr(device_lock, "make_locks", lambda: tmp_path)
    request = runs.request("Server", own_server())
    asked = replace(request, options=replace(request.options, system_name=tmp_path.name, tests=("accuracy",)))
    clock = [asked]

    def submit(error: BaseException | None = None, **changes: Any) -> tuple[Submission, list[RunAttempts]]:
        clock.append(later(clock[-1]))
        pipeline = submission(clock[-1], runs, error)
        for name, value in changes.items():
            setattr(pipeline, name, value)
        return pipeline, pipeline.complete()

    return submit


def submission(request: Request, runs: Runs, error: BaseException | None) -> Submission:
    pipeline = Submission(request, Panel(Console(file=io.StringIO(), width=300)), machine={})
    pipeline.made_assets, pipeline.contexts, pipeline.error = runs.assets, [], error
    return pipeline


def found(pipeline: Submission) -> list[Run]:
    return find_runs(pipeline.request.workspace.logs, pipeline.request.options.system_name)


def said(pipeline: Submission) -> str:
    file = pipeline.panel._console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_run_whose_scoring_failed_is_judged_again_without_a_new_run(submit: Submit) -> None:
    first, [failed] = submit(NO_PACKAGE)
    [run] = found(first)
    assert (run.state, run.reasons) == (State.MEASURED, [NO_PACKAGE.line])
    assert failed.exit_code == 3
    assert failed.run
    assert failed.run.path == run.path
    assert "its log is complete: the next submit judges it again" in said(first)
    assert "harness-llm run --model demo" in said(first)
    assert first.panel.state.finished == {State.MEASURED: 1}

    second, [again] = submit(RunFailed("accuracy script failed"))
    assert second.contexts == []
    assert again.exit_code == 4
    assert f"to judge again (MEASURED: {NO_PACKAGE.line})" in said(second)
    assert "of measurement" not in said(second)
    assert found(second)[0].reasons == ["accuracy script failed"]

    third, [judged] = submit()
    assert third.contexts == []
    assert judged.valid
    [run] = found(third)
    assert (run.state, run.reasons) == (State.VALID, [])
    assert submit()[0].contexts == []


def test_fault_of_the_data_set_keeps_the_complete_log(submit: Submit) -> None:
    first, [failed] = submit(ConfigError("damaged data set"))
    assert found(first)[0].state is State.MEASURED
    assert failed.exit_code == 2
    assert submit()[0].contexts == []


def test_run_during_which_the_measuring_source_changed_is_failed(
    submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judgement, "MEASURING", Changing(MEASURING.at_start, "changed"))
    first, _ = submit()
    [run] = found(first)
    assert run.state is State.FAILED
    assert run.reasons[0].startswith("the source of harness_llm that measures changed after this command had started")
    assert parse_detail(run.path / DETAIL).values
    assert "judges it again" not in said(first)


def test_run_does_not_start_if_the_measuring_source_has_changed(
    submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judgement, "MEASURING", Changing("changed"))
    first, _ = submit()
    [run] = found(first)
    assert run.state is State.FAILED
    assert not (run.path / DETAIL).exists()


def test_run_is_judged_after_an_upgrade_of_the_measuring_source(
    submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = submit(NO_PACKAGE)
    first.error = None
    monkeypatch.setattr(judgement, "MEASURING", Changing("upgraded"))
    assert judged(first, found(first)[0]).state is State.VALID


def test_run_stays_measured_if_the_judging_source_changes(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(judgement, "JUDGING", Changing("changed"))
        first, [failed] = submit()
    [run] = found(first)
    assert run.state is State.MEASURED
    assert run.reasons[0].startswith("the source of harness_llm that judges changed after this command had started")
    assert "its log is complete: the next submit judges it again" in said(first)
    assert failed.exit_code == 4
    assert submit()[0].contexts == []


def judged(pipeline: Submission, run: Run) -> Run:
    """`run` after another judgement."""
    [attempts] = pipeline.scenario_runs(pipeline.request.scenarios[0], pipeline.made_assets).run([], [run])
    assert attempts.run
    return attempts.run


def test_finished_run_is_judged_again(submit: Submit) -> None:
    first, _ = submit(verdict=RunResult(State.VALID, notes=["gate missed"], metrics={"ROUGE1": 1.0, "GEN_LEN": 2.0}))
    [run] = found(first)
    assert run.record
    assert run.record.judged_by == judged_by(first.request, first.request.scenarios[0], {})
    assert run.notes == ["gate missed", *run.record.notes]

    first.verdict = RunResult(State.INVALID, ["gate missed"], metrics={"ROUGE1": 3.0})
    again = judged(first, run)
    assert (again.state, again.reasons, again.notes) == (State.INVALID, ["gate missed"], run.record.notes)
    assert again.record
    assert again.record.metrics == {"ROUGE1": 3.0}

    first.verdict = None
    again = judged(first, again)
    assert (again.state, again.reasons) == (State.VALID, [])
    assert [one.record for one in found(first)] == [again.record]


def test_judgement_stays_if_judging_again_fails(submit: Submit) -> None:
    first, _ = submit()
    [run] = found(first)
    first.error = NO_PACKAGE
    assert judged(first, run).record == run.record
    first.error = None
    (run.path / DETAIL).write_bytes(b"")
    assert judged(first, run).state is State.FAILED


def test_judgement_depends_on_gates_bounds_and_source(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    request = runs.request("Server")
    [plan], [variant] = request.scenarios, list(request.variants)[:1]
    rules, bounds = request.variants[variant], request.round.compliance
    seen = [judged_by(request, plan, {}), judged_by(request, plan, {"ROUGE1": 40.0})]
    stricter = rules.model_copy(update={"gates": {"ROUGE1": 99.0}})
    seen.append(judged_by(replace(request, variants={**request.variants, variant: stricter}), plan, {}))
    for update in ({"bounds": {"share": 0.5}}, {"passes": (("x",),)}):
        other = {**bounds, "TEST06": bounds["TEST06"].model_copy(update=update)}
        seen.append(judged_by(replace(request, round=request.round.model_copy(update={"compliance": other})), plan, {}))
    accuracy = request.benchmark.accuracy.model_copy(update={"share_of_reference": 0.5})
    benchmark = request.benchmark.model_copy(update={"accuracy": accuracy})
    seen.append(judged_by(replace(request, benchmark=benchmark), plan, {}))
    enforcing = request.profile.model_copy(update={"enforce_accuracy": not request.profile.enforce_accuracy})
    seen.append(judged_by(replace(request, profile=enforcing), plan, {}))
    monkeypatch.setattr(judgement, "JUDGING", Changing("upgraded", at_start="upgraded"))
    seen.append(judged_by(request, plan, {}))
    assert len(set(seen)) == len(seen)


def test_source_of_the_start_is_stored_with_the_run(submit: Submit) -> None:
    pipeline, _ = submit()
    [run] = found(pipeline)
    assert read_stored(run.path) == present_source(pipeline.request.workspace)


def test_run_whose_scoring_was_interrupted_is_judged_again(submit: Submit) -> None:
    with pytest.raises(KeyboardInterrupt):
        submit(KeyboardInterrupt())
    pipeline, [judged] = submit()
    assert judged.valid
    assert "to judge again (MEASURED: the log is complete; its judgement was interrupted)" in said(pipeline)
    assert [run.state for run in found(pipeline)] == [State.VALID]


def test_run_with_an_incomplete_log_fails_and_is_repeated(submit: Submit) -> None:
    pipeline, _ = submit(NO_PACKAGE)
    log = found(pipeline)[0].path / DETAIL
    log.write_bytes(log.read_bytes()[:-100])
    _, [failed] = submit()
    assert failed.exit_code == 2
    pipeline, [repeated] = submit()
    assert repeated.valid
    assert [run.state for run in found(pipeline)] == [State.FAILED, State.VALID]


def test_run_of_another_fingerprint_is_not_judged_again(submit: Submit) -> None:
    submit(NO_PACKAGE)
    pipeline, [repeated] = submit(settings="second")
    assert repeated.valid
    assert "(NOT COUNTED: MEASURED but not equal to a run made now: settings: first vs second)" in said(pipeline)
    assert [run.state for run in found(pipeline)] == [State.MEASURED, State.VALID]


def test_replica_pool_is_kept_after_failed_scoring(runs: Runs) -> None:
    pipeline = submission(runs.request("Server", own_server()), runs, NO_PACKAGE)
    accuracy, performance = pipeline.scenario_runs(pipeline.request.scenarios[0], runs.assets).run(
        ["accuracy", "performance"]
    )
    assert isinstance(accuracy.error, EnvironmentMissing)
    assert not performance.error
    assert len({id(context.pool) for context in pipeline.contexts}) == 1
