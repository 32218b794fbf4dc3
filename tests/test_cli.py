import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from workspaces import NAMES, make_workspace

from harness_llm.cli.declaration import VERBOSE
from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE
from harness_llm.config.rules import round_names
from harness_llm.errors import RunFailed

COMMANDS = ("submit", "doctor", "run", "package", "status", "runs", "score", "verify", "check", "compare", "bundle")
HEAVY = ("vllm", "torch", "transformers", "mlperf_loadgen", "numpy", "yaml", "zmq", "msgspec", "tokenizers")


@pytest.fixture
def harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    for variable in (VERBOSE, CHECKOUT_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    make_workspace(tmp_path)
    yield CommandLine(monkeypatch, capsys)
    assert not (tmp_path / "build" / "logs").exists(), "a run was made"


def test_help_lists_every_command_and_every_exit_code(harness: CommandLine) -> None:
    done = harness("--help")
    assert done.code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in done.out
    for code in ("0 success", "1 a check", "2 wrong use", "3 missing", "4 a run failed", "130 interrupted"):
        assert code in " ".join(done.out.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_lists_its_options(harness: CommandLine, command: str) -> None:
    done = harness(command, "--help")
    assert done.code == 0
    assert f"harness-llm {command} [OPTIONS]" in done.out
    assert len(done.out.splitlines()) > 5


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_option_exits_with_2(harness: CommandLine, command: str) -> None:
    done = harness(command, "--no-such-option")
    assert done.code == 2
    assert "No such option: --no-such-option" in done.err


@pytest.mark.parametrize("words", [["--help"], ["submit", "--help"]])
def test_help_imports_no_heavy_package(words: list[str]) -> None:
    program = f"""
import sys
sys.argv = ["harness-llm", *{words!r}]
from harness_llm.cli import main as cli
try:
    cli.main()
except SystemExit as end:
    assert not end.code, end.code
print("loaded:", *(name for name in {HEAVY!r} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("command", ["submit", "package"])
def test_submission_without_company_or_system_name_is_refused(harness: CommandLine, command: str) -> None:
    done = harness(command, "--system-name", "box")
    assert done.code == 2
    assert done.err == "error: missing --company\n\nhint: --company Acme\n"
    done = harness(command, "--company", "Acme")
    assert done.code == 2
    assert "missing --system-name" in done.err
    assert "hint: --system-name my-box" in done.err


@pytest.mark.parametrize("command", ["run", "status"])
def test_run_without_system_name_is_refused(harness: CommandLine, command: str) -> None:
    done = harness(command)
    assert done.code == 2
    assert "missing --system-name" in done.err


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["--model", "llama9"], ["unknown benchmark llama9", "models/llama9/benchmark.yaml", "demo, ", "toy"]),
        (["--on-replica-failure=ignore"], ["harness_config.on_replica_failure", "'requeue' or 'fail'", "ignore"]),
        (["--scenarios", "Batch"], ["unknown scenario Batch", "Offline, Server, Interactive, SingleStream"]),
        (["--scenario=Batch"], ["unknown scenario Batch"]),
        (["--round", "v9.9"], ["unknown round v9.9", f"expected: {', '.join(round_names())}", "hint: "]),
        (["--profile", "slow"], ["unknown profile slow", "expected: test, smoke, rehearsal, fast, valid"]),
        (
            ["--gpu", "h2000"],
            ["missing settings for llama2-70b on h2000", "h2000.yaml", "h100, h200", "hint: --gpu h200"],
        ),
        (["--device", "h2000"], ["missing settings for llama2-70b on h2000"]),
        (["--division", "half"], ["the half division does not allow", "expected: open", "hint: --division open"]),
        (["--category", "home"], ["no category home", "expected: datacenter"]),
        (["--engine", "vlm"], ["no engine vlm", "expected: vllm"]),
        (["--set", "llm_config"], ["invalid --set", "found: llm_config"]),
        (
            ["--batch-size", "many"],
            ["an engine argument is wrong", "--set llm_config.max_num_seqs=many", "whole number"],
        ),
        (["--num-workers=0"], ["a setting is wrong", "--set harness_config.replicas=0", "greater than or equal to 1"]),
        (["--model-path", "/m"], ["unknown option --model-path", "hint: models/<benchmark>/benchmark.yaml"]),
        (["--mlperf-conf=x"], ["unknown option --mlperf-conf", "hint: mlperf.conf is compiled into LoadGen"]),
        (["--total-sample-count", "0"], ["--total-sample-count", "greater than or equal to 1"]),
        (["--total-sample-count", "-5"], ["--total-sample-count"]),
        (["--system-name", "my box"], ["the system name is not a folder name", "hint: write my_box"]),
    ],
)
def test_unknown_option_values_are_refused(harness: CommandLine, words: list[str], lines: list[str]) -> None:
    done = harness("submit", "--dry-run", *NAMES, *words)
    assert done.code == 2
    for line in lines:
        assert line in done.err
    assert "Traceback" not in done.err


def test_unknown_test_is_refused(harness: CommandLine) -> None:
    done = harness("run", *NAMES, "--tests", "performance,TEST99")
    assert done.code == 2
    assert "has no test TEST99" in done.err
    assert "expected: performance, accuracy, TEST06" in done.err


@pytest.mark.parametrize("option", ["--scenario", "--scenarios"])
def test_verify_accepts_both_spellings_of_the_scenario_option(
    harness: CommandLine, tmp_path: Path, option: str
) -> None:
    done = harness("verify", str(tmp_path), option, "Batch")
    assert done.code == 2
    assert "unknown scenario Batch" in done.err


OSS = ("--scenario", "Offline", "--model", "gpt-oss-120b", "--round", "v6.0")


def test_verify_requires_test_where_the_round_has_several(harness: CommandLine, tmp_path: Path) -> None:
    done = harness("verify", str(tmp_path), *OSS)
    assert done.code == 2
    assert "gpt-oss-120b has 2 compliance tests in round v6.0" in done.err
    assert "expected: --test TEST07 or TEST09" in done.err


@pytest.mark.parametrize(("tokens", "code"), [(1200, 0), (1100, 1)])
def test_verify_counts_answer_lengths(harness: CommandLine, tmp_path: Path, tokens: int, code: int) -> None:
    answer = {"seq_id": 0, "qsl_idx": 0, "data": "94020000" * tokens, "token_count": tokens}
    (tmp_path / "mlperf_log_accuracy.json").write_text(json.dumps([answer]))
    done = harness("verify", str(tmp_path), *OSS, "--test", "TEST09", "--output", str(tmp_path / "verdict"))
    assert done.code == code
    assert f"Mean output tokens: {tokens:.2f}\n" in done.out
    assert (tmp_path / "verdict").read_text() == done.out
    assert ("error: TEST09 failed" in done.err) == bool(code)


def test_verify_of_a_scored_test_requires_the_data_set(harness: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "mlperf_log_accuracy.json").write_text("[]")
    done = harness("verify", str(tmp_path), *OSS, "--test", "TEST07")
    assert done.code == 3
    assert "gpt-oss-120b is not prepared" in done.err


def test_hint_repeats_the_options_of_the_command(harness: CommandLine, tmp_path: Path) -> None:
    """Including --stand-in: the benchmark itself would need a download."""
    (tmp_path / "mlperf_log_accuracy.json").write_text("[]")
    done = harness("score", str(tmp_path), "--model", "llama2-70b", "--stand-in", "--profile", "test")
    assert done.code == 3
    hint = done.err.split("hint: ")[1]
    assert hint.startswith("harness-llm prepare --model llama2-70b ")
    assert " --stand-in" in hint
    assert " --profile test " in hint


def test_check_of_a_missing_tree_is_refused(harness: CommandLine, tmp_path: Path) -> None:
    done = harness("check", str(tmp_path / "tree"))
    assert done.code == 2
    assert "no such tree" in done.err
    assert f"where: {tmp_path / 'tree'}" in done.err
    assert "hint: " in done.err


def _raising(error: BaseException):
    def raise_(*_: object, **__: object) -> None:
        raise error

    return raise_


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RunFailed("the engine ended"), 4, "error: the engine ended\n"),
        (KeyboardInterrupt(), 130, "interrupted; the same command continues\n"),
        (ZeroDivisionError("division by zero"), 4, "this is a bug: ZeroDivisionError('division by zero')"),
    ],
)
def test_each_error_class_has_its_exit_code(
    harness: CommandLine, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    monkeypatch.setattr("harness_llm.cli.submit_command.submit", _raising(error))
    done = harness("submit", *NAMES)
    assert done.code == code
    assert said in done.err
    assert "Traceback" not in done.err


def test_verbose_prints_the_traceback(harness: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness_llm.cli.submit_command.submit", _raising(RunFailed("the engine ended")))
    done = harness("-v", "submit", *NAMES)
    assert done.code == 4
    assert "Traceback" in done.err
    assert "error: the engine ended\n" in done.err
    assert VERBOSE not in os.environ


@pytest.mark.parametrize(("error", "code"), [(OSError("no space left"), 3), (ZeroDivisionError(), 4)])
def test_verbose_keeps_the_exit_code(
    harness: CommandLine, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    monkeypatch.setattr("harness_llm.cli.submit_command.submit", _raising(error))
    done = harness("-v", "submit", *NAMES)
    assert done.code == code
    assert "Traceback" in done.err


def test_interrupted_run_is_not_continued(harness: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """`harness-llm run` makes all runs again."""
    monkeypatch.setattr("harness_llm.cli.submit_command.run", _raising(KeyboardInterrupt()))
    done = harness("run", *NAMES)
    assert (done.code, done.err) == (130, "interrupted\n")


def test_accuracy_and_tests_together_are_refused(harness: CommandLine) -> None:
    done = harness("run", *NAMES, "--accuracy", "--tests", "performance")
    assert done.code == 2
    assert "error: --accuracy contradicts --tests\n\nhint: --tests performance,accuracy\n" in done.err


def test_sigterm_is_an_interrupt(tmp_path: Path) -> None:
    """As a scheduler ends a job."""
    program = """
import os, signal, sys, types
from harness_llm.cli import main as cli, run_declarations
run_declarations._panel = lambda *_: None
sys.modules["harness_llm.cli.submit_command"] = types.SimpleNamespace(
    submit=lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)
)
sys.argv = ["harness-llm", "submit"]
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted; the same command continues\n")
