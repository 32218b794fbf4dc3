"""The checks before a submission: all errors are reported together, before any engine starts."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from machines import hide_tools
from token_server import TokenServer
from workspaces import NAMES, edit, make_workspace

from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE
from harness_llm.config.options import Options
from harness_llm.config.request import Request, load_request
from harness_llm.config.rules import load_round
from harness_llm.errors import ConfigError, EnvironmentMissing, GateFailed
from harness_llm.evaluate.official import script_runner as evaluator
from harness_llm.hardware import device_lock as devices
from harness_llm.hardware.ecc import UNTOLD
from harness_llm.paths import Workspace
from harness_llm.pipeline.doctor import download_checks
from harness_llm.pipeline.doctor.check_result import CheckResult, Level, failed, from_error, not_checked, passed, warned
from harness_llm.pipeline.doctor.doctor_report import from_json, refuse, render, summary, to_json
from harness_llm.pipeline.doctor.examination import _check_assignment
from harness_llm.pipeline.doctor.settings_checks import resolve_settings
from harness_llm.pipeline.submit import Pipeline
from harness_llm.prepare.quantize.quantize import PROGRAMS
from harness_llm.replicas.ray.cluster import Cluster, Node, NodeInfo
from harness_llm.runs import fingerprint

FIELDS = set(load_round("v6.1").system.filled) - {"division", "submitter", "system_type", "status"}
COMPLETE = "".join(f'{name}: "1"\n' for name in sorted(FIELDS))
ON_CPU = ["--gpu", "cpu"]
DEMO = ["--model", "demo", *ON_CPU]


@pytest.fixture(autouse=True)
def no_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_tools(monkeypatch)
    monkeypatch.setattr(download_checks, "require_access", lambda *_, **__: None)  # see test_doctor_downloads.py
    monkeypatch.delenv(CHECKOUT_VARIABLE, raising=False)
    monkeypatch.setattr(devices, "make_locks", lambda: tmp_path)


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    make_workspace(tmp_path)
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test when a submission goes on to prepare, download or run."""

    def started(*_: object, **__: object) -> None:
        pytest.fail("the submission started")

    for name in ("submit", "complete", "run", "prepare"):
        monkeypatch.setattr(Pipeline, name, started)


def results(harness: CommandLine, *words: str) -> dict[str, list[dict[str, Any]]]:
    """The results of `doctor --json`, by name of the check."""
    found: dict[str, list[dict[str, Any]]] = {}
    for result in json.loads(harness("doctor", "--json", *words).out)["checks"]:
        found.setdefault(result["name"], []).append(result)
    return found


def system_file(root: Path, text: str) -> None:
    """Write the system file of the system box."""
    file = root / "submission/systems/box.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_demo_without_faults_has_only_ok_lines_and_exit_code_0(harness: CommandLine) -> None:
    done = harness("doctor", *DEMO, *NAMES)
    assert done.code == 0
    *lines, empty, count = done.out.splitlines()
    assert {line.split()[0] for line in lines} == {"ok"}
    assert (empty, count) == ("", f"{len(lines)} checks: {len(lines)} ok")
    assert done.err == ""


def test_missing_names_are_errors_with_the_option_to_add(harness: CommandLine) -> None:
    done = harness("doctor", *DEMO, "--company", "Acme")
    assert done.code == 2
    assert "error        Names                  missing --system-name\n" in done.out
    assert "             → --system-name my-box" in done.out


@pytest.mark.parametrize(
    ("company", "system", "found"),
    [("a/b", "box", ["'a/b'"]), ("Acme", "x y", ["'x y'"]), ("a/b", "x y", ["'a/b'", "'x y'"])],
)
def test_a_wrong_name_is_reported_once_beside_all_other_results(
    harness: CommandLine, company: str, system: str, found: list[str]
) -> None:
    words = ("--company", company, "--system-name", system)
    done = results(harness, "--model", "toy", *ON_CPU, "--division", "closed", "--profile", "valid", *words)
    wrong = [result for own in done.values() for result in own if "is not a folder name" in result["found"]]
    assert [result["observed"] for result in wrong] == found
    assert done["Settings"][0]["level"] == "ok"
    assert ("System description" in done) == (system == "box")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("status: [unclosed\n", "invalid YAML"),
        ("colling: Air\n", "unknown field colling"),
        ("status: shipped\n", "invalid value of status"),
        ("submitter: Other\n", "contradiction"),
    ],
)
def test_a_fault_of_the_system_file_is_reported_once(
    harness: CommandLine, tmp_path: Path, text: str, fault: str
) -> None:
    system_file(tmp_path, text if "[" in text else COMPLETE + text)
    words = ("--model", "toy", *ON_CPU, "--division", "closed", "--profile", "valid", *NAMES)
    every = [result for own in results(harness, *words).values() for result in own]
    assert [fault in result["found"] for result in every].count(True) == 1


def test_a_system_file_may_repeat_the_division(harness: CommandLine, tmp_path: Path) -> None:
    system_file(tmp_path, COMPLETE + "status: available\ndivision: closed\n")
    words = ("--model", "toy", *ON_CPU, "--division", "closed", "--profile", "valid", *NAMES)
    assert not any("contradiction" in one["found"] for own in results(harness, *words).values() for one in own)


def test_wrong_options_are_one_error(harness: CommandLine) -> None:
    done = harness("doctor", "--json", "--model", "none", *ON_CPU)
    assert done.code == 2
    (result,) = json.loads(done.out)["checks"]
    assert (result["name"], result["level"]) == ("Options", "error")
    assert "unknown benchmark none" in result["found"]


def test_error_of_one_benchmark_keeps_the_results_of_the_others(
    harness: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(request: Request) -> list[CheckResult]:
        if request.benchmark.name == "toy":
            raise EnvironmentMissing("a disk cannot be read")
        return []

    monkeypatch.setattr("harness_llm.pipeline.doctor.examination.check_assets", broken)
    words = ("--model", "demo,toy", *ON_CPU, *NAMES, "--division", "open")
    found = results(harness, *words)
    assert found["toy"][0]["found"] == "a disk cannot be read"
    assert found["LoadGen"][0]["level"] == "ok"
    assert harness("doctor", *words).code == 3


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("command", ["submit", "run"])
def test_all_errors_are_reported_at_once_before_any_run(harness: CommandLine, tmp_path: Path, command: str) -> None:
    for scenario in ("offline", "server"):
        file = tmp_path / "models" / "toy" / f"{scenario}_cpu.yaml"
        edit(file, lambda content: content.setdefault("harness_config", {}).update(warmup_samples=5))
    done = harness(command, "--model", "toy", *ON_CPU, "--division", "closed", "--profile", "valid")
    assert done.code == 2
    assert f"error: {4 if command == 'submit' else 3} checks failed" in done.err
    for scenario in ("offline", "server"):
        assert f"{scenario}_cpu.yaml: harness_config.warmup_samples" in done.err
    assert ("missing --company" if command == "submit" else "missing --system-name") in done.err
    assert not (tmp_path / "build/logs").exists()


@pytest.mark.usefixtures("nothing_starts")
def test_gaps_and_requirements_of_closed_are_reported_together(harness: CommandLine, tmp_path: Path) -> None:
    done = harness("submit", "--model", "toy", *ON_CPU, "--division", "closed", "--profile", "valid", *NAMES)
    assert done.code == 2
    assert "missing fields in the description of box" in done.err
    assert "missing facts about box, which closed datacenter must document" in done.err
    assert str(tmp_path / "submission/systems/box.yaml") in done.err


@pytest.mark.usefixtures("nothing_starts")
def test_prepare_needs_no_names(harness: CommandLine) -> None:
    done = harness("prepare", "--model", "none", *ON_CPU)
    assert done.code == 2
    assert "unknown benchmark none" in done.err


@pytest.mark.usefixtures("nothing_starts")
def test_replay_cannot_be_packaged(harness: CommandLine) -> None:
    done = harness("submit", *DEMO, *NAMES, "--engine", "replay", "--profile", "smoke")
    assert done.code == 2
    assert "the replay engine computes nothing" in done.err


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("command", ["submit", "run"])
@pytest.mark.parametrize("engine", [["llmboost"], ["openai", "--set", "server_config.kind=triton"]])
def test_closed_refuses_unproven_servers_before_any_run(harness: CommandLine, command: str, engine: list[str]) -> None:
    words = ("--model", "toy", *ON_CPU, *NAMES, "--profile", "valid", "--engine", *engine)
    done = harness(command, "--division", "closed", *words)
    assert done.code == 2
    assert f"closed does not count runs of {'llmboost' if engine == ['llmboost'] else 'triton'} servers" in done.err
    assert "--division open" in done.err
    found = results(harness, "--division", "open", *words)["Settings"]
    assert not [result for result in found if "does not count" in result["found"]]


@pytest.mark.usefixtures("nothing_starts")
def test_missing_loadgen_is_an_error(harness: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("harness_llm.loadgen.versions.sys.prefix", str(tmp_path))
    done = harness("submit", *DEMO, *NAMES)
    assert done.code == 3
    assert "LoadGen of round v6.1 is not installed" in done.err
    assert results(harness, *DEMO, *NAMES, "--part", "container")["LoadGen"][0]["level"] == "error"


@pytest.mark.usefixtures("nothing_starts")
def test_missing_evaluator_is_an_error(harness: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MLPERF_INFERENCE_DIR", raising=False)
    (tmp_path / "models/gpt-oss-120b/cpu.yaml").write_text((tmp_path / "models/demo/cpu.yaml").read_text())
    words = ("--model", "gpt-oss-120b", *ON_CPU, "--division", "open", *NAMES)
    assert results(harness, "--part", "container", *words)["Scoring"][0]["level"] == "error"
    done = harness("submit", *words)
    assert done.code == 3
    assert "missing accuracy script" in done.err


def test_performance_alone_needs_no_evaluator(harness: CommandLine) -> None:
    assert "Scoring" not in results(harness, *DEMO, *NAMES, "--tests", "performance")


@pytest.mark.usefixtures("nothing_starts")
def test_devices_used_by_another_submission_are_an_error(harness: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def held(*_: object) -> None:
        raise EnvironmentMissing("another harness-llm process uses cpu", found="process 7", hint="wait for it")

    monkeypatch.setattr("harness_llm.pipeline.doctor.examination.hold", held)
    done = harness("submit", *DEMO, *NAMES)
    assert done.code == 3
    assert done.err == "error: another harness-llm process uses cpu\n  found: process 7\n\nhint: wait for it\n"


def test_all_benchmarks_are_checked_before_the_first_runs(
    harness: CommandLine, nothing_starts: None, tmp_path: Path
) -> None:
    edit(tmp_path / "models/toy/cpu.yaml", lambda content: content.update(harness_config={"replicas": 0}))
    done = harness("submit", "--model", "demo,toy", *ON_CPU, *NAMES, "--division", "open")
    assert done.code == 2
    assert "harness_config.replicas" in done.err


WRONG = from_error("Settings", ConfigError("a setting is wrong", "a.yaml", "a number", "x", "write 5"))
MISSING = failed("Disk", "1 GB free", expected="2 GB", where="/data", hint="free some")


def test_text_has_a_line_for_each_result_and_its_hint() -> None:
    assert render(
        [passed("GPUs", "8 x NVIDIA H200"), WRONG, not_checked("Disk", "on another machine")]
    ).splitlines() == [
        "ok           GPUs                   8 x NVIDIA H200",
        "error        Settings               a setting is wrong",
        "             where: a.yaml",
        "             expected: a number",
        "             found: x",
        "             → write 5",
        "not checked  Disk                   on another machine",
    ]


@pytest.mark.parametrize(
    ("found", "text", "count"),
    [
        ([passed("a", "b")], "1 check: 1 ok", {"ok": 1, "error": 0, "warning": 0, "not checked": 0}),
        (
            [WRONG, MISSING, passed("a", "b"), warned("c", "d"), not_checked("e", "f"), not_checked("e", "g")],
            "6 checks: 1 ok, 2 errors, 1 warning, 2 not checked",
            {"ok": 1, "error": 2, "warning": 1, "not checked": 2},
        ),
    ],
)
def test_results_are_counted_by_level(found: list[CheckResult], text: str, count: dict[str, int]) -> None:
    assert summary(found) == text
    assert json.loads(json.dumps(to_json(found)))["count"] == count


def test_fact_of_several_lines_is_indented_below_its_result() -> None:
    gaps = from_error("System", ConfigError("gaps", found="a\n         b", hint="write\nc: 1"))
    assert render([gaps]).splitlines()[1:] == [f"             {line}" for line in ("found: a", "b", "→ write", "c: 1")]


def test_json_is_read_back() -> None:
    found = [passed("GPUs", "8"), WRONG, MISSING, warned("x", "y", hint="z"), not_checked("a", "b")]
    assert from_json(json.loads(json.dumps(to_json(found)))) == found


def test_failed_gate_counts_as_missing() -> None:
    assert from_error("ECC", GateFailed("ECC is off")).exit_code == 3


@pytest.mark.parametrize(
    ("found", "error", "what"),
    [
        ([WRONG], ConfigError, "^a setting is wrong"),
        ([MISSING], EnvironmentMissing, "^Disk: 1 GB free"),
        ([WRONG, WRONG], ConfigError, "2 checks"),
        ([WRONG, MISSING], EnvironmentMissing, "2 checks"),
    ],
)
def test_exit_code_is_2_only_if_every_error_is_wrong_configuration(
    found: list[CheckResult], error: type[Exception], what: str
) -> None:
    with pytest.raises(error, match=what) as caught:
        refuse([passed("a", "b"), *found, warned("c", "d")])
    assert "c" not in str(caught.value).split()


def test_warnings_do_not_prevent_a_submission() -> None:
    refuse([warned("a", "b"), passed("c", "d"), not_checked("e", "f")])
    assert list(Level) == ["ok", "not checked", "warning", "error"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--model", "gptj", "--round", "v5.0", "--division", "closed"], ["Offline", "Offline, Server"]),
        (["--model", "gptj", "--round", "v5.0", "--division", "open", "--scenarios", "Server"], []),
        (["--model", "llama3.1-8b-edge", "--division", "open", "--scenarios", "Offline,Server"], ["Server"]),
        (["--model", "llama3.1-8b-edge", "--division", "open", "--scenarios", "Offline"], []),
        (["--model", "llama3.1-8b", "--division", "closed"], []),
    ],
)
def test_results_that_the_official_checker_never_accepts_are_a_warning(
    harness: CommandLine, words: list[str], found: list[str]
) -> None:
    division = words[words.index("--division") + 1]
    warnings = results(harness, *words, "--gpu", "h100", *NAMES).get("Official checker", [])
    assert {warning["level"] for warning in warnings} <= {"warning"}
    assert [warning["found"].partition(f", {division}: ")[0] for warning in warnings] == [
        f"always rejects {words[1]} {scenarios}" for scenarios in found
    ]
    assert all(warning["hint"] for warning in warnings)


def test_available_system_with_a_nightly_engine_is_a_warning(
    harness: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "submission" / "systems" / "box.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("status: available\n")
    assert [r["level"] for r in results(harness, *DEMO, *NAMES)["Availability"]] == ["ok"]
    monkeypatch.setattr(fingerprint, "versions", lambda: {"vllm": "0.30.1.dev3"})
    (result,) = results(harness, *DEMO, *NAMES)["Availability"]
    assert (result["level"], result["where"]) == ("warning", f"{file}: status: available")
    assert result["found"] == "vllm 0.30.1.dev3: a nightly or development build"
    file.write_text("status: preview\n")
    assert "Availability" not in results(harness, *DEMO, *NAMES)


def test_official_script_that_cannot_run_is_a_warning(
    harness: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Official scripts" not in results(harness, *DEMO, *NAMES)
    script = tmp_path / "inference" / "language" / "llama2-70b" / "evaluate-accuracy.py"
    script.parent.mkdir(parents=True)
    script.write_text("")
    monkeypatch.setenv(CHECKOUT_VARIABLE, str(tmp_path / "inference"))
    monkeypatch.setattr(evaluator, "make_folder", lambda *_: None)
    monkeypatch.setattr(evaluator, "PYTHON", Path("/no/such/python"))
    (result,) = results(harness, *DEMO, *NAMES)["Official scripts"]
    assert (result["level"], result["hint"]) == ("warning", "make graders")
    assert "accuracy.txt would be computed by harness-llm" in result["found"]
    assert "Official scripts" not in results(harness, *DEMO, *NAMES, "--tests", "performance")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("division", "server", "level", "shown"),
    [
        ("open", TokenServer(), "ok", "stand-in, version unknown"),
        ("closed", TokenServer(version="0.32.0"), "ok", "stand-in, version 0.32.0"),
        ("closed", TokenServer(), "error", "does not report its version, so the measured software is unknown"),
    ],
)
def test_running_servers_are_asked_before_any_run(
    harness: CommandLine, division: str, server: TokenServer, level: str, shown: str
) -> None:
    words = ["--model", "toy", *ON_CPU, *NAMES, "--division", division, "--profile", "valid", "--engine", "openai"]
    with server:
        [found] = results(harness, *words, "--set", f"server_config.url={server.url}")["Servers"]
    assert shown in found["found"]
    assert found["level"] == level


@pytest.mark.parametrize("command", ["submit", "run"])
@pytest.mark.usefixtures("nothing_starts")
def test_server_that_does_not_answer_is_refused_before_any_run(harness: CommandLine, command: str) -> None:
    done = harness(command, *DEMO, *NAMES, "--engine", "openai", "--set", "server_config.url=http://127.0.0.1:1")
    assert done.code == 3
    assert "http://127.0.0.1:1/health (server_config.url)" in done.err


@pytest.mark.parametrize(
    ("setting", "code", "words"),
    [
        ("kind=triton", 2, "missing command to start a triton server"),
        ("command=true {x}", 2, "unknown placeholder in the server command"),
        ("command=no-such-program", 3, "missing program no-such-program"),
    ],
)
@pytest.mark.parametrize("command", ["doctor", "submit"])
@pytest.mark.usefixtures("nothing_starts")
def test_server_that_cannot_be_started_is_refused_before_any_run(
    harness: CommandLine, command: str, setting: str, code: int, words: str
) -> None:
    done = harness(command, *DEMO, *NAMES, "--engine", "openai", "--set", f"server_config.{setting}")
    assert done.code == code
    assert (done.out + done.err).count(words) == 1


@pytest.mark.parametrize("command", ["doctor", "submit"])
@pytest.mark.usefixtures("nothing_starts")
def test_used_port_of_the_metrics_is_refused_before_any_run(harness: CommandLine, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = harness(command, *DEMO, *NAMES, "--metrics-port", str(server.getsockname()[1]))
    assert done.code == 2
    assert (done.out + done.err).count("the port for the metrics cannot be used") == 1


@pytest.mark.parametrize("command", ["doctor", "submit"])
@pytest.mark.usefixtures("nothing_starts")
def test_missing_environment_of_the_quantization_is_refused_before_any_download(
    harness: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    missing = PROGRAMS["llmcompressor"]._replace(python=tmp_path / "python")
    monkeypatch.setitem(PROGRAMS, "llmcompressor", missing)
    done = harness(command, *DEMO, *NAMES)
    assert done.code == 3
    assert (done.out + done.err).count("missing environment of llmcompressor") == 1
    words = ("--model", "llama3.1-8b", "--gpu", "h200", "--division", "open", *NAMES)
    assert results(harness, *words)["Quantization"][0]["hint"] == "make setup"
    for part in ("host", "container"):  # the image has the environment
        assert results(harness, *words, "--part", part).get("Quantization", [{"level": "ok"}])[0]["level"] == "ok"


def test_devices_of_a_cluster_are_counted(harness: CommandLine) -> None:
    request = load_request(Options(model="llama2-70b", gpu="h200", division="open"), Workspace())
    request, _ = resolve_settings(request)
    info = NodeInfo(folder="", source="", packages={}, inherited={}, machine={}, host={}, ecc=UNTOLD, digests={})
    nodes = tuple(Node(address=name, cpus=64, gpus=2, info=info) for name in ("a", "b"))
    enough = tuple(Node(address=name, cpus=64, gpus=8, info=info) for name in ("a", "b"))
    error, unknown = dict.fromkeys(_check_assignment(request, Cluster("a:1", nodes)))
    assert (error.level, error.exit_code) == (Level.ERROR, 2)
    assert "not enough accelerators" in error.found
    assert list(_check_assignment(request, Cluster("a:1", enough))) == [unknown]
    assert unknown.level is Level.NOT_CHECKED
    assert list(_check_assignment(request, Cluster("a:1", enough[:1]))) == []
