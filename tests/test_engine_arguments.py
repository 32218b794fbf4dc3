"""The engine arguments of the pinned vLLM as data, and the values that they accept."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness_llm.config import engine_arguments as arguments
from harness_llm.config.engine_arguments import engine_arguments, expected_value
from harness_llm.paths import CHECKOUT

DATA = Path(arguments.__file__).with_name("vllm_arguments.json")


def submit_dry(setting: str) -> subprocess.CompletedProcess[str]:
    words = ["submit", "--dry-run", "--model", "llama2-70b", "--gpu", "h100", "--company", "Acme"]
    words += ["--system-name", "x", "--set", setting]
    program = "from harness_llm.cli.main import main; main()"
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT)


@pytest.mark.slow
def test_recorded_arguments_equal_those_of_the_installed_vllm(tmp_path: Path) -> None:
    written = tmp_path / "arguments.json"
    command = [sys.executable, "-m", "harness_llm.config.describe_arguments", str(written)]
    subprocess.run(command, check=True, capture_output=True)
    hint = "python -m harness_llm.config.describe_arguments harness_llm/config/vllm_arguments.json"
    assert json.loads(written.read_text()) == json.loads(DATA.read_text()), hint


def test_recorded_arguments_are_used_without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = engine_arguments()
    arguments._installed_arguments.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert engine_arguments() == installed
    arguments._installed_arguments.cache_clear()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max_num_seqs", 256, ""),
        ("max_num_seqs", -1, "a whole number >= 1"),
        ("max_num_seqs", True, "a whole number >= 1"),
        ("max_num_seqs", 1.5, "a whole number >= 1"),
        ("gpu_memory_utilization", 1, ""),
        ("gpu_memory_utilization", 0.95, ""),
        ("gpu_memory_utilization", 0, "a number > 0 and <= 1"),
        ("gpu_memory_utilization", "much", "a number > 0 and <= 1"),
        ("enforce_eager", False, ""),
        ("enforce_eager", "maybe", "true or false"),
        ("kv_cache_dtype", "fp8", ""),
        ("kv_cache_dtype", "fp9", "one of auto, bfloat16, float16, fp8"),
        ("dtype", "bfloat17", "one of auto, bfloat16, float, float16"),
        ("block_size", None, ""),
        ("compilation_config", {"mode": 3}, ""),
    ],
)
def test_argument_values_are_checked_against_the_limits_of_vllm(name: str, value: Any, expected: str) -> None:
    found = expected_value(name, value)
    assert found.startswith(expected)
    assert bool(found) is bool(expected)


@pytest.mark.engine  # imports vLLM
@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("llm_config.max_num_seqs=-1", "a whole number >= 1"),
        ("llm_config.enforce_eager=maybe", "true or false"),
        ("llm_config.kv_cache_dtype=fp9", "one of auto"),
    ],
)
def test_dry_run_refuses_a_wrong_argument_value(setting: str, expected: str) -> None:
    ended = submit_dry(setting)
    assert ended.returncode == 2
    assert f"--set {setting}: {setting.partition('=')[0]}" in ended.stderr
    assert expected in ended.stderr
