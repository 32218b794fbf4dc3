"""Offline inferred from SingleStream: allowed for edge systems, refused for others before a run."""

import filecmp
from pathlib import Path
from typing import Any

import pytest
from asked import filled, options
from packages import assets
from runs import BENCHMARK, write_all
from submissions import submission_of

from harness_llm.config.options import Options
from harness_llm.config.plan import resolve
from harness_llm.config.request import Request
from harness_llm.errors import ConfigError
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.doctor.settings_checks import check_inferred
from harness_llm.runs.record import find_runs
from harness_llm.runs.selection import Wanted, select, with_inferred
from harness_llm.submission.package import package

EDGE = "llama3.1-8b-edge"
TESTS = ("performance", "accuracy", "TEST06")


WORDS = {"gpu": "h100", "system_name": "box"}


def chosen(scenarios: str, model: str = EDGE) -> Options:
    return filled(Workspace(CHECKOUT), model=model, scenarios=scenarios, **WORDS)


def ask(scenarios: str, model: str = EDGE, **words: Any) -> Request:
    return resolve(options(model=model, scenarios=scenarios, **WORDS | words), Workspace(CHECKOUT))


def test_only_the_source_scenario_is_run() -> None:
    request = ask("singlestream,offline=singlestream")
    assert [plan.scenario for plan in request.scenarios] == ["SingleStream"]
    assert request.options.inferred == (("Offline", "SingleStream"),)


def test_repeating_command_names_the_inferred_scenario() -> None:
    choices = chosen("SingleStream,Offline=SingleStream")
    assert "--scenarios SingleStream,Offline=SingleStream" in choices.command()
    assert "--scenarios SingleStream --" in choices.command("SingleStream") + " --"


@pytest.mark.parametrize(
    ("scenarios", "words", "expected"),
    [
        ("Offline,Server=Offline", {}, "MultiStream=SingleStream, Offline=MultiStream, Offline=SingleStream"),
        ("SingleStream,SingleStream=Offline", {}, "MultiStream=SingleStream"),
        ("Offline,Offline=SingleStream", {"model": "llama3.1-8b"}, "--category edge"),
        ("SingleStream,MultiStream=SingleStream", {}, "Offline, SingleStream"),
        ("SingleStream,Offline,Offline=SingleStream", {}, "Offline measured, or inferred, not both"),
        ("Server,Offline=SingleStream", {"division": "open"}, "SingleStream among the scenarios, measured"),
    ],
)
def test_scenario_that_cannot_be_inferred_is_refused(scenarios: str, words: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match="this scenario cannot be inferred") as caught:
        ask(scenarios, **words)
    assert caught.value.expected.startswith(expected)
    assert "inference_rules.adoc:329-346" in caught.value.expected
    assert caught.value.where.startswith("--scenarios ")


def test_doctor_describes_an_inferred_result() -> None:
    (warning,) = check_inferred(ask("SingleStream,Offline=SingleStream"))
    assert "queries/s of SingleStream" in warning.found
    assert warning.hint == "--scenarios SingleStream,Offline measures Offline"
    assert not list(check_inferred(ask("SingleStream,Offline")))


def test_tree_contains_copies_of_the_source_runs(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    for name in ("models/demo/benchmark.yaml", "code/user_cpu.conf"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes((CHECKOUT / name).read_bytes())
    write_all(workspace.logs, "SingleStream")
    benchmark = ask("Offline", model=BENCHMARK, gpu="cpu").benchmark
    submission = submission_of(benchmark, category="edge")
    wanted = Wanted(BENCHMARK, submission.profile, "v6.1", "open", newest=True)
    measured = select(find_runs(workspace.logs, submission.system), ["SingleStream"], TESTS, wanted)
    selection = with_inferred(measured, [("Offline", "SingleStream")])
    made = package(submission, selection, workspace, assets(workspace))
    results = made.tree / f"open/Acme/results/{submission.system}/{BENCHMARK}"
    for log in ("performance/run_1/mlperf_log_detail.txt", "accuracy/mlperf_log_accuracy.json", "user.conf"):
        assert filecmp.cmp(results / "SingleStream" / log, results / "Offline" / log, shallow=False)
