"""`harness-llm submit` from an empty workspace to a checked tree, with the real vLLM and the real LoadGen.

One submission is interrupted, continued to its end, and repeated. `make test-all` kills another one.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ended_submission import NAMES, SUBMIT, SYSTEM, Stop, digests, finished, stop
from terminal import Ended, Terminal, prepared_workspace
from waiting import wait_until
from ways import RUNS, done, plans

from harness_llm.checker.official import run_official
from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE
from harness_llm.evaluate.accuracy_file import parse
from harness_llm.loadgen.logs import ACCURACY, DETAIL, parse_detail, read_accuracy_log
from harness_llm.paths import Workspace
from harness_llm.prepare.demo.stages import Assets
from harness_llm.runs.record import RECORD, Run, State, find_runs

pytestmark = [pytest.mark.engine(seconds=200), pytest.mark.processes]

SCENARIOS = ("Offline", "Server")
TESTS = ("performance", "accuracy", "TEST06")
TREE = "inference_results_6.1-smoke"
EOS = 2
# Errors of the official checker on short runs over a part of the data set.
SIZE = (
    "needs to be >= 24576|less than 600s|does not cover all dataset|Some (performance|accuracy) checks Checks failed|"
    "NoResults|SUMMARY"
)


@dataclass(frozen=True)
class Journey:
    """All commands; `second` was started while the first submission ran."""

    second: Ended
    first: Stop
    done: Ended
    again: Ended
    untouched: bool


@pytest.fixture(scope="module")
def journey(terminal: Terminal) -> Journey:
    made = terminal.until_valid(lambda: submit(terminal))
    assert made.done.code == 0, made.done.err
    return made


def submit(terminal: Terminal) -> Journey:
    """Interrupt a submission, complete it and repeat it."""
    command = terminal.start(*SUBMIT)
    wait_until(lambda: terminal.socket_folders() or command.process.poll(), 900, "a replica pool")
    second = terminal.run(*SUBMIT)
    first = stop(terminal, command, signal.SIGINT)
    before = finished(terminal.workspace.logs)
    done = terminal.run(*SUBMIT)
    untouched = before.items() <= finished(terminal.workspace.logs).items()
    return Journey(second, first, done, terminal.run(*SUBMIT), untouched)


@pytest.fixture(scope="module")
def tree(journey: Journey, workspace: Workspace) -> Path:
    return workspace.submission / TREE


@pytest.fixture(scope="module")
def runs(journey: Journey, workspace: Workspace) -> dict[tuple[str, str], Run]:
    """The runs that were packaged: the last of each run."""
    return {(run.run_key.scenario, run.run_key.test): run for run in find_runs(workspace.logs, SYSTEM)}


# Interruption and continuation


def test_second_submission_on_the_same_devices_is_refused(journey: Journey) -> None:
    assert journey.second.code == 3
    assert "another harness-llm process uses cpu" in journey.second.err
    assert re.search(rf"found: process \d+: harness-llm submit .*--system-name {SYSTEM}", journey.second.err)


def test_interrupted_submission_leaves_no_process_and_no_socket(journey: Journey) -> None:
    assert journey.first.end.code == 130
    assert "interrupted; the same command continues" in journey.first.end.err
    assert "Traceback" not in journey.first.end.err
    assert journey.first.children >= 2  # a replica, LoadGen
    assert journey.first.left == []
    assert journey.first.states == [State.INTERRUPTED]


def test_plan_after_an_interruption_lists_the_missing_runs(journey: Journey) -> None:
    assert_plan(journey.first.plan)


def assert_plan(plan: str) -> None:
    done = {(scenario, test) for scenario, test in re.findall(r"(\w+) +(\w+) +done", plan)}
    assert done == {*((SCENARIOS[0], test) for test in TESTS), ("Server", "performance")}
    assert "INTERRUPTED: ended without a record" in plan


def test_same_command_continues_after_an_interruption(
    journey: Journey, runs: dict[tuple[str, str], Run], workspace: Workspace
) -> None:
    run_keys = [(run.run_key.scenario, run.run_key.test, run.state) for run in find_runs(workspace.logs, SYSTEM)]
    assert sorted(run_keys) == sorted(
        [
            *((scenario, test, State.VALID) for scenario in SCENARIOS for test in TESTS),
            ("Server", "accuracy", State.INTERRUPTED),
        ]
    )
    assert journey.untouched
    assert {run.state for run in runs.values()} == {State.VALID}


def test_each_scenario_starts_its_engine_once(journey: Journey, workspace: Workspace) -> None:
    first, done = journey.first.end.err, journey.done.err
    assert [first.count(f"{scenario}: starting 1 x vllm") for scenario in SCENARIOS] == [1, 1]
    assert first.count("1 replica process ready") == 2
    assert [done.count(f"{scenario}: starting 1 x vllm") for scenario in SCENARIOS] == [0, 1]
    assert done.count("1 replica process ready") == 1
    logs = [log.parent.name for log in sorted(workspace.logs.rglob("replica-*.log"))]
    assert logs == ["Offline", "Server", "Server"]  # the interrupted submission, then its continuation


def test_repeated_command_runs_nothing(journey: Journey) -> None:
    assert journey.again.code == 0
    assert "starting" not in journey.again.err
    assert len(re.findall(r"\w+ +\w+ +done", journey.again.err)) == len(SCENARIOS) * len(TESTS)
    assert journey.again.out == journey.done.out


# The tree


def test_tree_has_every_file_and_no_error(tree: Path, terminal: Terminal) -> None:
    home = tree / "open" / "Acme"
    source = "src/demo/harness-llm"
    packed = [f"{source}/harness_llm/cli/main.py", f"{source}/Makefile"]
    for path in ("model_mapping.json", f"systems/{SYSTEM}.json", *packed):
        assert (home / path).stat().st_size
    for scenario in SCENARIOS:
        files = digests(home / "results" / SYSTEM / "demo" / scenario)
        assert sorted(files) == sorted(
            [
                *("README.md", "user.conf", "measurements.json", "configuration.yaml"),
                *(f"accuracy/{name}" for name in ("accuracy.txt", ACCURACY, DETAIL, "mlperf_log_summary.txt")),
                *(f"performance/run_1/{name}" for name in (DETAIL, "mlperf_log_summary.txt")),
                *("TEST06/verify_accuracy.txt", f"TEST06/accuracy/{ACCURACY}"),
            ]
        )
    end = terminal.run("check", str(tree), "--json")
    findings = json.loads(end.out)["findings"]
    assert end.code == 0
    assert {finding["rule"]: finding["severity"] for finding in findings} == {
        "not-submittable": "warning",
        "accuracy-samples": "scale",
        "min-duration": "scale",
        "performance-samples": "scale",
    }


def test_system_description_states_the_machine_of_the_runs(tree: Path, runs: dict[tuple[str, str], Run]) -> None:
    described = json.loads((tree / f"open/Acme/systems/{SYSTEM}.json").read_text())
    for run in runs.values():
        assert run.record
        machine = run.record.nodes[""].machine
        assert machine["framework"]
        assert machine.items() <= described.items()


def test_smoke_tree_is_marked_not_submittable(tree: Path, journey: Journey) -> None:
    assert (tree / "open/Acme/documentation/README.md").read_text().startswith("# NOT SUBMITTABLE")
    assert "not submittable" in journey.done.err


def test_report_of_the_packaged_runs_is_beside_the_archive(tree: Path, journey: Journey) -> None:
    report = tree.with_name(f"{TREE}_demo_report.html")
    assert f"report: {report}" in journey.done.err
    text = report.read_text()
    for scenario in SCENARIOS:
        assert f"demo, {scenario}" in text


def test_archive_contains_the_tree_and_matches_its_checksum(tree: Path, journey: Journey) -> None:
    archive = tree.with_name(f"{TREE}.tar.gz")
    assert journey.done.out == f"{tree}\n{archive}\n"
    checksum = archive.with_name(f"{archive.name}.sha256").read_text()
    assert checksum == f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n"
    with tarfile.open(archive) as tar:
        packed = {
            member.name.removeprefix(f"{TREE}/"): hashlib.sha256(content.read()).hexdigest()
            for member in tar
            if (content := tar.extractfile(member))
        }
    assert packed == digests(tree)


def test_tree_contains_the_logs_of_the_runs(tree: Path, runs: dict[tuple[str, str], Run]) -> None:
    for scenario in SCENARIOS:
        result = tree / "open" / "Acme" / "results" / SYSTEM / "demo" / scenario
        performance, accuracy = runs[scenario, "performance"].path, runs[scenario, "accuracy"].path
        assert (result / "performance/run_1" / DETAIL).read_bytes() == (performance / DETAIL).read_bytes()
        assert parse_detail(performance / DETAIL).valid
        assert (result / "user.conf").read_bytes() == (performance / "user.conf").read_bytes()
        assert (result / "accuracy" / DETAIL).read_bytes() == (accuracy / DETAIL).read_bytes()
        whole = hashlib.sha256((accuracy / ACCURACY).read_bytes()).hexdigest()
        assert (result / "accuracy" / "accuracy.txt").read_text().endswith(f"hash={whole}\n")


def test_calibration_document_is_written_without_any_run(tree: Path, terminal: Terminal) -> None:
    end = terminal.run("package", "--calibration-only", *NAMES, "--profile", "valid")
    assert end.code == 0
    document = Path(end.out.strip())
    assert document == tree.with_name("inference_results_6.1-demo") / "open/Acme/documentation/calibration.md"
    assert "## By the engine\n\nOffline, Server:\n" in document.read_text()


def test_accuracy_manifest_names_the_complete_logs(tree: Path, runs: dict[tuple[str, str], Run]) -> None:
    manifest = tree.with_name(f"{TREE}_accuracy_logs.json")
    found = {(manifest.parent / entry["log"]).resolve() for entry in json.loads(manifest.read_text()).values()}
    assert found == {runs[scenario, "accuracy"].path / ACCURACY for scenario in SCENARIOS}


@pytest.mark.inference
def test_official_checker_finds_only_sizes_of_a_smoke_tree(tree: Path) -> None:
    for verdict in run_official(tree, "v6.1", Path(os.environ[CHECKOUT_VARIABLE])):
        assert "SUMMARY: submission has errors" in verdict.tail[-1]
        assert [line for line in verdict.errors if not re.search(SIZE, line)] == []


# Answers and verdicts


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_answers_equal_those_of_the_reference(scenario: str, runs: dict[tuple[str, str], Run], assets: Assets) -> None:
    answers = read_accuracy_log(runs[scenario, "accuracy"].path / ACCURACY)
    right = json.loads((assets.reference.parent / "answers.json").read_text())
    assert sorted(answer.qsl_idx for answer in answers) == list(range(len(right)))
    ids = {answer.qsl_idx: answer.ids.tolist() for answer in answers}
    assert all(answer.token_count == len(answer.ids) for answer in answers)
    assert all(EOS not in answer[:-1] and (answer[-1] == EOS or len(answer) == 48) for answer in ids.values())
    assert sum(answer[-1] == EOS for answer in ids.values()) > 0.9 * len(ids)
    # FP8 answers as the original does, but for a few.
    assert sum(right[index] == answer for index, answer in ids.items()) > 0.9 * len(ids)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_score_and_verify_print_the_packaged_verdicts(
    scenario: str, tree: Path, runs: dict[tuple[str, str], Run], terminal: Terminal
) -> None:
    result = tree / "open" / "Acme" / "results" / SYSTEM / "demo" / scenario
    run = runs[scenario, "accuracy"]
    score = terminal.run("score", str(run.path))
    packaged = parse((result / "accuracy" / "accuracy.txt").read_text())
    assert parse(score.out).items() <= packaged.items()
    assert score.code == any("fails" in note for note in run.notes)

    verify = terminal.run("verify", str(runs[scenario, "TEST06"].path), "--scenario", scenario)
    assert verify.out == (result / "TEST06" / "verify_accuracy.txt").read_text()
    first = "Skipped" if scenario == "Offline" else "True"
    assert verify.out.startswith(f"First token check pass: {first}\n")
    assert verify.out.endswith("TEST06 verification complete\n")
    assert verify.code == 0


def test_status_lists_all_runs(tree: Path, terminal: Terminal) -> None:
    end = terminal.run("status", "--system-name", SYSTEM)
    assert end.code == 0
    assert end.out.count("VALID") == len(SCENARIOS) * len(TESTS)


@pytest.mark.slow
@pytest.mark.parametrize("model", [{}, {"MODEL": "demo"}])
@pytest.mark.parametrize("way", ["make", "make, exported settings", "harness-llm", "script of setup"])
def test_other_ways_plan_nothing_with_the_default_model_and_its_name(
    journey: Journey, terminal: Terminal, tmp_path: Path, way: str, model: dict[str, str]
) -> None:
    settings = model | {"COMPANY": "Acme", "SYSTEM_NAME": SYSTEM}
    assert done(plans(settings, tmp_path)[way].plan(terminal)) == RUNS


# Copies of the workspace


@pytest.fixture
def copy(journey: Journey, workspace: Workspace, assets: Assets, tmp_path: Path) -> Iterator[Terminal]:
    """A workspace with the same runs, and no tree."""
    other = prepared_workspace(tmp_path / "copy", assets)
    shutil.copytree(workspace.logs, other.logs)
    terminal = Terminal(other)
    yield terminal
    terminal.close()


@pytest.mark.slow
def test_killed_submission_leaves_no_process_and_no_socket(copy: Terminal) -> None:
    for run in find_runs(copy.workspace.logs, SYSTEM):
        if run.run_key.scenario == "Server" and run.run_key.test in {"accuracy", "TEST06"}:
            shutil.rmtree(run.path)
    killed = stop(copy, copy.start(*SUBMIT), signal.SIGKILL)
    assert killed.end.code == -signal.SIGKILL
    assert killed.children >= 2  # a replica, LoadGen
    assert killed.left == []
    assert killed.states == [State.INTERRUPTED]
    assert_plan(killed.plan)


def edit(**changes: Any) -> Callable[[Path], None]:
    def apply(record: Path) -> None:
        record.write_text(json.dumps(json.loads(record.read_text()) | changes))

    return apply


def other_subject(record: Path) -> None:
    document = json.loads(record.read_text())
    document["fingerprint"]["llm_config"]["max_num_seqs"] = 64
    record.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("spoil", "state", "reason"),
    [
        (edit(state="RUNNING"), "INTERRUPTED", "ended without a record"),
        (edit(state="DEGRADED", reasons=["a replica failed"]), "DEGRADED", "a replica failed"),
        (edit(state="FAILED", reasons=["out of memory"]), "FAILED", "out of memory"),
        (other_subject, "NOT COUNTED", "llm_config.max_num_seqs: 64 vs 128"),
    ],
    ids=["interrupted", "degraded", "failed", "other-fingerprint"],
)
def test_run_that_does_not_count_is_planned_again_and_no_other(
    copy: Terminal, spoil: Callable[[Path], None], state: str, reason: str
) -> None:
    (record,) = copy.workspace.logs.glob(f"*/{SYSTEM}/demo/Server/performance/{RECORD}")
    spoil(record)
    before = digests(copy.workspace.logs)

    package = copy.run("package", *NAMES)
    assert package.code == 1
    assert "incomplete results, not packaged" in package.err
    assert f"demo/Server/performance: {state}, " in package.err
    assert reason in package.err
    assert not list(copy.workspace.submission.glob("inference*"))

    plan = copy.run(*SUBMIT, "--dry-run").err
    assert len(re.findall(r"\w+ +\w+ +done", plan)) == len(SCENARIOS) * len(TESTS) - 1
    assert re.search(rf"Server +performance +\d+ samples.*\({state}: .*{re.escape(reason)}\)", plan)
    assert digests(copy.workspace.logs) == before
