"""Installation of the optional package Optuna on first use."""

import importlib.util
from pathlib import Path

import pytest

from harness_llm.errors import EnvironmentMissing
from harness_llm.pipeline.tuning import optuna_layer
from harness_llm.pipeline.tuning.optuna_layer import require_optuna


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout without Optuna, whose set-up script records its arguments and fails."""
    script = tmp_path / "setup" / "environments.sh"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\nexit 3\n')
    script.chmod(0o755)
    monkeypatch.setattr(optuna_layer, "CHECKOUT", tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    return tmp_path / "calls"


def test_missing_optuna_is_installed_by_the_set_up_and_a_failure_is_an_error(calls: Path) -> None:
    with pytest.raises(EnvironmentMissing, match="optuna") as error:
        require_optuna(lambda _: None)
    assert calls.read_text() == "here engine optuna\n"
    assert "exit code 3" in error.value.found


def test_installed_optuna_needs_no_set_up(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    require_optuna(lambda _: None)
    assert not calls.exists()
