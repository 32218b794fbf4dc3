"""Exit codes of `submit --no-package` and `run`."""

import io
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from asked import options
from rich.console import Console
from runs import SUBJECT, write_run
from workspaces import CLOSED, make_workspace

from harness_llm.cli import submit_command
from harness_llm.cli.each_benchmark import each_benchmark
from harness_llm.cli.submit_command import _report_runs
from harness_llm.config.assets import Assets
from harness_llm.config.plan import resolve
from harness_llm.config.profile import load_profile
from harness_llm.config.request import Request, load_request
from harness_llm.errors import GateFailed, RunFailed
from harness_llm.evaluate.run_result import TOO_FEW
from harness_llm.hardware import device_lock
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline import submit as submit_module
from harness_llm.pipeline.attempts import Attempt, RunAttempts
from harness_llm.pipeline.doctor.doctor import ReadyBenchmark
from harness_llm.pipeline.doctor.purpose import Purpose
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.scenario_runs import ScenarioRuns
from harness_llm.pipeline.submit import Pipeline
from harness_llm.runs.facts import run_facts_of
from harness_llm.runs.record import Run, RunKey
from harness_llm.runs.selection import Present

BAD = {"state": "INVALID", "reasons": [TOO_FEW]}
NOTED = {**BAD, "notes": ["not for closed: the server has no version"]}
WORSE = {"state": "INVALID", "reasons": [TOO_FEW, "LoadGen error: no"]}
LATE = {"state": "INVALID", "reasons": ["LoadGen result INVALID: TTFT constraint not met", TOO_FEW]}
LOST = {"state": "FAILED", "reasons": ["a replica failed"]}


def end(tmp_path: Path, profile: str, *records: dict[str, Any], said: io.StringIO | None = None) -> str:
    """The note of a command that exits with 0."""
    said = said or io.StringIO()
    runs = [write_run(tmp_path, "Server", "performance", hour=i, **facts) for i, facts in enumerate(records)]
    attempts = [RunAttempts(run.run_key, (Attempt(run),)) for run in runs]
    _report_runs(attempts, load_profile(profile, Workspace(CHECKOUT)), Panel(Console(file=said, width=200)), "again")
    return said.getvalue()


@pytest.mark.parametrize("records", [[BAD], [{}, BAD], [NOTED]])
def test_run_invalid_only_by_early_stopping_exits_with_0_in_the_test_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], records: list[dict[str, Any]]
) -> None:
    said = end(tmp_path, "test", *records)
    assert "Server performance completed; LoadGen's early stopping needs more queries" in said
    assert "runs of the profile test are not packaged" in said
    assert len(capsys.readouterr().out.splitlines()) == len(records)


@pytest.mark.parametrize(
    ("profile", "record"),
    [("smoke", BAD), ("fast", BAD), ("valid", BAD), ("test", WORSE), ("test", LATE)],
)
def test_other_invalid_runs_exit_with_1(tmp_path: Path, profile: str, record: dict[str, Any]) -> None:
    said = io.StringIO()
    with pytest.raises(GateFailed, match="not every run is VALID") as caught:
        end(tmp_path, profile, {}, record, said=said)
    assert "completed" not in said.getvalue()
    assert record["reasons"][-1] in caught.value.found
    assert caught.value.found.count("/Server/performance  INVALID") == 1


def test_stop_on_failure_ends_the_command_at_a_degraded_run(tmp_path: Path) -> None:
    degraded = write_run(tmp_path, "Server", "performance", state="DEGRADED", reasons=["replica-1 failed"])
    request = load_request(
        options(model="demo", gpu="cpu", system_name="box", stop_on_failure=True), Workspace(CHECKOUT)
    )
    context: Any = SimpleNamespace(pool=SimpleNamespace(stop=lambda: None))
    unused: Any = None
    runs = ScenarioRuns(request, "Server", lambda _: context, lambda *_: degraded, unused, Panel(Console(quiet=True)))
    with pytest.raises(RunFailed, match="DEGRADED") as caught:
        runs.run(["performance", "accuracy"])
    assert (caught.value.where, caught.value.found) == (str(degraded.path), "replica-1 failed")


def present_runs(request: Request, *_: Any) -> dict[RunKey, Present]:
    """Equal to the runs of `Measured`."""
    keys = [RunKey(request.benchmark.name, "Offline", test) for test in request.tests]
    return {key: Present(run_facts_of(SUBJECT, {}, key.test, ())) for key in keys}


class Measured(Pipeline):
    """A pipeline whose runs end at once, with `violations`."""

    violations: tuple[str, ...] = ()

    def assets(self) -> None:
        return None

    def _prepare(self) -> Assets:
        return Assets(Path(), Path(), {}, Path())

    def scenario_runs(self, plan: Any, assets: Assets) -> ScenarioRuns:
        return cast("ScenarioRuns", SimpleNamespace(run=self._run))

    def _run(self, tests: Sequence[str], measured: Sequence[Run]) -> list[RunAttempts]:
        facts = {"benchmark": CLOSED, "system": "box", "division": "closed", "profile": "valid"}
        made = {"violations": list(self.violations)}
        runs = [write_run(self.request.workspace.logs, "Offline", test, run_facts=made, **facts) for test in tests]
        return [RunAttempts(run.run_key, (Attempt(run),)) for run in runs]


@pytest.mark.parametrize("violations", [(), ("prompt tokens were taken from a cache: 9",)])
def test_valid_runs_that_closed_does_not_allow_exit_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, violations: tuple[str, ...]
) -> None:
    monkeypatch.setattr(device_lock, "make_locks", lambda: tmp_path)
    monkeypatch.setattr(Measured, "violations", violations)
    monkeypatch.setattr(submit_module, "present_runs", present_runs)
    monkeypatch.setattr(submit_command, "build_pipeline", lambda request, panel, _: Measured(request, panel))
    words = {"model": CLOSED, "gpu": "cpu", "division": "closed", "profile": "valid", "system_name": "box"}
    request = resolve(options(scenarios="Offline", package=False, **words), make_workspace(tmp_path))
    panel = Panel(Console(file=io.StringIO(), width=200))

    def submit() -> None:
        submit_command._submit(ReadyBenchmark(Purpose.MEASURE, request, None), panel)

    if not violations:
        submit()
        return
    with pytest.raises(GateFailed, match="not every run is VALID and counted") as caught:
        submit()
    assert f"{len(request.tests)} of {len(request.tests)} runs are missing" in caught.value.found
    assert f"NOT COUNTED  1         VALID but not allowed in closed: {violations[0]}" in caught.value.found


def test_valid_runs_print_no_note(tmp_path: Path) -> None:
    assert end(tmp_path, "smoke", {}) == ""


@pytest.mark.parametrize("stop_on_failure", [False, True])
def test_failure_of_a_benchmark_ends_the_others_only_with_stop_on_failure(stop_on_failure: bool) -> None:
    said, done = io.StringIO(), []
    errors = [RunFailed("first"), GateFailed("second"), None]

    def do(benchmark: str) -> None:
        done.append(benchmark)
        if error := errors[len(done) - 1]:
            raise error

    with pytest.raises(RunFailed, match="first"):
        each_benchmark(["a", "b", "c"], do, Panel(Console(file=said)), stop_on_failure=stop_on_failure)
    assert len(done) == (1 if stop_on_failure else 3)
    assert said.getvalue() == ("" if stop_on_failure else "error: second\n")
