"""The README of a result has the commands that repeat it, and they work."""

import shlex
from dataclasses import fields, replace
from pathlib import Path

import pytest
from asked import filled
from command_line import CommandLine
from runs import SUBJECT, SYSTEM, write_run
from submissions import submission_of
from workspaces import make_workspace

from harness_llm.cli import submit_command
from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.options import Options
from harness_llm.config.rules import load_round
from harness_llm.paths import Workspace
from harness_llm.runs.record import RunRecord, find_runs
from harness_llm.runs.stored_source import present_source, source_of
from harness_llm.submission.documents import Documents
from harness_llm.submission.packed_source import PackedSource
from harness_llm.submission.readme import repeating
from harness_llm.submission.tree import build_tree

TESTS = ("performance", "accuracy", "TEST06")
RARE = {
    "model": "llama3.1-8b",
    "gpu": "h100",
    "round": "v5.1",
    "division": "open",
    "category": "datacenter",
    "scenarios": "Server,Offline,MultiStream=SingleStream",
    "profile": "fast",
    "engine": "transformers",
    "system_name": "my-box",
    "stand_in": True,
    "set": ["llm_config.max_num_seqs=7", "harness_config.backlog=3"],
    "total_sample_count": 77,
    "user_conf": Path("my user.conf"),
    "gpu_count": 3,
    "high_accuracy": True,
    "ray": "auto",
    "on_replica_failure": "fail",
}
"""Options that all differ from their defaults."""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    return make_workspace(tmp_path)


@pytest.fixture
def command_line(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def test_command_repeats_every_option(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    choices, unsaid = filled(**RARE), filled()
    said = {field.name for field in fields(Options) if getattr(choices, field.name) != getattr(unsaid, field.name)}
    others = {
        "again",
        "company",
        "tests",
        "category",
        "division",
        "environment",
        "metrics_port",
        "package",
        "profile_window",
        "scenario_switches",
        "stop_on_failure",
    }
    assert said | others == {field.name for field in fields(Options)}
    found: list[Options] = []
    monkeypatch.setattr(submit_command, "submit", lambda given, *_, **__: found.append(given))
    assert command_line(*shlex.split(choices.command())[1:]).code == 0
    assert command_line(*shlex.split(choices.command("Offline"))[1:]).code == 0
    assert found == [choices, replace(choices, scenarios=("Offline",))]


def lines_of(readme: Path) -> list[str]:
    section = readme.read_text().split("## How to repeat it")[1]
    return [line.strip() for line in section.split("## ")[0].splitlines() if line.startswith("    ")]


def test_command_in_the_readme_of_a_result_works_in_the_tree(
    workspace: Workspace, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"model": "llama2-70b", "gpu": "h100", "division": "open", "scenarios": "Offline"}
    choices = filled(**words, system_name=SYSTEM, set=["llm_config.max_num_seqs=7"], total_sample_count=300)
    fingerprint = SUBJECT | {"inherited": {"OMP_NUM_THREADS": "1", "VLLM_X": "a b"}}
    for test in TESTS:
        record = {"command": choices.command("Offline"), "fingerprint": fingerprint, "benchmark": choices.model}
        write_run(workspace.logs, "Offline", test, **record)
    what = submission_of(load_benchmark(choices.model, workspace), profile="valid")
    runs = {"Offline": {run.run_key.test: run for run in find_runs(workspace.logs, what.system)}}
    source = PackedSource(source_of(what.benchmark, present_source(workspace)))
    tree = build_tree(what, runs, Documents({}, source=source), workspace)
    home = tree / "open" / "Acme"
    made, *exports, download, submit = lines_of(home / f"results/{SYSTEM}/llama2-70b-99.9/Offline/README.md")
    assert (made, exports) == ("make setup", ["export OMP_NUM_THREADS=1", "export VLLM_X='a b'"])
    assert download == ".venv/bin/harness-llm download --model llama2-70b"
    program, *words = shlex.split(submit)
    assert program == ".venv/bin/harness-llm"
    assert words[-2:] == ["--company", "Acme"]
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(home / "src" / "llama2-70b" / "harness-llm"))
    done = command_line(*words, "--dry-run")
    assert done.code == 0, done.err
    assert "Offline      accuracy     300 samples" in done.err
    assert "Server" not in done.err


def test_inferred_result_is_called_so_and_its_command_infers_it(
    workspace: Workspace, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = filled(model="llama3.1-8b-edge", gpu="h100", system_name=SYSTEM, scenarios="SingleStream")
    for test in ("performance", "accuracy"):
        write_run(
            workspace.logs, "SingleStream", test, command=choices.command("SingleStream"), benchmark=choices.model
        )
    what = submission_of(load_benchmark(choices.model, workspace), profile="valid", category="edge")
    runs = {run.run_key.test: run for run in find_runs(workspace.logs, what.system)}
    tree = build_tree(what, {"SingleStream": runs, "Offline": runs}, Documents({}), workspace)
    results = tree / f"open/Acme/results/{SYSTEM}/{choices.model}"
    assert "inferred" not in (results / "SingleStream" / "README.md").read_text()
    readme = results / "Offline" / "README.md"
    assert "This result is inferred: its runs are those of SingleStream" in readme.read_text()
    found: list[Options] = []
    monkeypatch.setattr(submit_command, "submit", lambda given, *_, **__: found.append(given))
    assert command_line(*shlex.split(lines_of(readme)[-1])[1:]).code == 0
    assert [(options.measured, options.inferred) for options in found] == [
        (("SingleStream",), (("Offline", "SingleStream"),))
    ]


@pytest.mark.parametrize(
    ("model", "lines"),
    [
        ("llama2-70b", ["download --model llama2-70b", "quantize --model llama2-70b --recipe fp8-static"]),
        ("deepseek-r1", ["download --model deepseek-r1"]),
    ],
)
def test_readme_of_a_published_benchmark_starts_with_download_and_quantize(
    workspace: Workspace,
    command_line: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    lines: list[str],
) -> None:
    choices = filled(model=model, gpu="h200", system_name="box", division="open", scenarios="Offline")
    record = write_run(workspace.logs, "Offline", "performance", command=choices.command()).record
    assert isinstance(record, RunRecord)
    submission = submission_of(load_benchmark(model, workspace), profile="valid", rules=load_round(choices.round))
    first, *prepared, submit = repeating(submission, [record, record], {"recipe": {"name": "fp8-static"}})
    assert first == "make setup"
    assert prepared == [f".venv/bin/harness-llm {line}" for line in lines]
    called: list[str] = []
    for function in ("downloads.download.download", "quantize.quantize.quantize"):
        monkeypatch.setattr(f"harness_llm.prepare.{function}", lambda *words, **_: called.append(words[0]))
    for line in prepared:
        assert command_line(*shlex.split(line)[1:]).code == 0
    assert called == [model] * len(prepared)
    done = command_line(*shlex.split(submit)[1:], "--dry-run")
    assert done.code == 0, done.err
    assert "to prepare: checkpoint" in done.err
