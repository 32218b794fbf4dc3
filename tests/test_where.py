"""Environment in which `make submission` runs: container, local or host."""

import os
import subprocess
from pathlib import Path

import pytest

import setup.where
from harness_llm.errors import ConfigError
from harness_llm.paths import CHECKOUT
from setup.where import where


@pytest.mark.parametrize(
    ("environ", "accelerated", "docker", "expected"),
    [
        ({}, False, True, "local"),
        ({}, True, True, "container"),
        ({}, True, False, "local"),
        ({"GPU_NAME": "mi300x"}, True, True, "container"),
        ({"GPU_NAME": "cpu"}, True, True, "local"),
        ({"STAND_IN": "1"}, True, True, "local"),
        ({"STAND_IN": "1", "GPU_NAME": "h200"}, True, True, "container"),
        ({"STAND_IN": "0"}, True, True, "container"),
        ({"RAY_ADDRESS": "10.0.0.1:6379"}, True, True, "local"),
        ({"RAY_ADDRESS": "10.0.0.1:6379", "ENVIRONMENT": "container"}, True, True, "container"),
        ({"ENVIRONMENT": "local"}, True, True, "local"),
        ({"ENVIRONMENT": "container"}, False, False, "container"),
        ({"ENVIRONMENT": "container", "HARNESS_LLM_IMAGE": "submission"}, True, True, "local"),
    ],
)
def test_environment_of_a_submission_follows_from_machine_and_option(
    environ: dict[str, str], accelerated: bool, docker: bool, expected: str
) -> None:
    assert where(environ, accelerated=accelerated, docker=docker) == expected


def test_unknown_environment_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown ENVIRONMENT production") as caught:
        where({"ENVIRONMENT": "production"}, accelerated=False, docker=True)
    assert caught.value.expected == "local or container"


def test_exported_cdpath_adds_no_line_to_the_answer() -> None:
    environ = {**os.environ, "CDPATH": str(CHECKOUT), "ENVIRONMENT": "local"}
    command = ["sh", "setup/environments.sh", "where"]
    done = subprocess.run(command, cwd=CHECKOUT, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "local\n"


@pytest.mark.parametrize(("name", "expected"), [("engine", "container"), ("none", "local")])
def test_container_engine_of_the_variable_is_found(
    name: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "engine").touch(mode=0o755)
    for variable in ("ENVIRONMENT", "GPU_NAME", "STAND_IN", "RAY_ADDRESS", "HARNESS_LLM_IMAGE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "/none")
    monkeypatch.setenv("DOCKER", str(tmp_path / name))
    monkeypatch.setattr(setup.where, "accelerators", lambda: {"10de:2335": 8})
    setup.where.main()
    assert capsys.readouterr().out == f"{expected}\n"
