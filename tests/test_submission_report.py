"""The report beside the archive shows the packaged runs."""

import io
from pathlib import Path

import pytest
from asked import options
from packages import assets
from rich.console import Console
from runs import BENCHMARK, SUBJECT, short_program, write_all
from submissions import submission_of

from harness_llm.cli import submission_report
from harness_llm.cli.submission_report import report_submission
from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.request import load_request
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.panel import Panel
from harness_llm.runs.facts import run_facts_of
from harness_llm.runs.record import RunKey, find_runs
from harness_llm.runs.selection import Present, Wanted, select, with_inferred
from harness_llm.submission.package import Package, package

TESTS = ("performance", "accuracy", "TEST06")
FACTS = {"samples": 500}
OTHER = SUBJECT | {"llm_config": {"max_num_seqs": 256}}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    short_program(monkeypatch)
    return Workspace(tmp_path)


def present(scenario: str) -> dict[RunKey, Present]:
    return {RunKey(BENCHMARK, scenario, t): Present(run_facts_of(SUBJECT, FACTS, t, ())) for t in TESTS}


def packaged(workspace: Workspace, scenario: str, **submission: str) -> Package:
    """Runs of SUBJECT that are packaged, though there are newer ones of another fingerprint."""
    write_all(workspace.logs, scenario, fingerprint=SUBJECT, run_facts=FACTS)
    write_all(workspace.logs, scenario, fingerprint=OTHER, hour=3, run_facts=FACTS)
    what = submission_of(load_benchmark(BENCHMARK, Workspace(CHECKOUT)), **submission)
    wanted = Wanted(BENCHMARK, what.profile, what.rules.round, what.division, present(scenario))
    selection = select(find_runs(workspace.logs, what.system), [scenario], TESTS, wanted)
    return package(what, with_inferred(selection, [("Offline", "SingleStream")]), workspace, assets(workspace))


def reported(workspace: Workspace, made: Package) -> str:
    """What `report_submission` prints."""
    said = io.StringIO()
    request = load_request(options(model=BENCHMARK, gpu="cpu", system_name="cpu-box"), Workspace(CHECKOUT))
    report_submission(request, made, Panel(Console(file=said, width=300)))
    return said.getvalue()


def test_report_shows_the_packaged_runs_and_no_newer_ones(workspace: Workspace) -> None:
    made = packaged(workspace, "Server")
    file = made.tree.with_name(f"{made.tree.name}_demo_report.html")
    assert f"report: {file}" in reported(workspace, made)
    text = file.read_text()
    assert "20260701T120000Z" in text
    assert "20260701T150000Z" not in text


def test_report_shows_the_runs_of_an_inferred_result_once(workspace: Workspace) -> None:
    made = packaged(workspace, "SingleStream", category="edge")
    assert [(run.run_key.scenario, run.run_key.test) for run in made.runs] == [("SingleStream", t) for t in TESTS]


def test_failed_report_does_not_fail_the_submission(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission_report, "write_page", lambda *_: 1 / 0)
    assert "no report was made: ZeroDivisionError" in reported(workspace, packaged(workspace, "Server"))
