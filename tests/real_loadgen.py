"""The real LoadGen of a round, in its own process, because LoadGen reads one configuration per process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness_llm.config.rules import Round, load_round, round_names
from harness_llm.errors import EnvironmentMissing
from harness_llm.loadgen.versions import loadgen_folder

NEWEST = load_round(round_names()[-1])
_PROGRAM = Path(__file__).with_name("null_sut.py")


def _missing() -> str:
    try:
        loadgen_folder(NEWEST)
    except EnvironmentMissing as error:
        return error.what
    return ""


needs_loadgen = pytest.mark.skipif(bool(_missing()), reason=_missing())


def loadgen_environment(round_: Round = NEWEST) -> dict[str, str]:
    """What a process needs to find the round's LoadGen."""
    return {**os.environ, "PYTHONPATH": str(loadgen_folder(round_))}


def real_settings(
    folder: Path, user_conf: str, model: str, scenario: str, round_: Round = NEWEST
) -> dict[str, int | float]:
    """The numbers in TestSettings once LoadGen has read `user_conf`."""
    return _ask(folder, user_conf, round_, model, scenario, "settings")


def real_issued(
    folder: Path, user_conf: str, model: str, scenario: str, *, samples: int, test: str, round_: Round = NEWEST
) -> int:
    """How many samples LoadGen issues in `test` over a data set of `samples`; its logs land in `folder`."""
    mode = {"performance": "PerformanceOnly", "accuracy": "AccuracyOnly"}[test]
    issued: int = _ask(folder, user_conf, round_, model, scenario, str(samples), mode)["issued"]
    return issued


def _ask(folder: Path, user_conf: str, round_: Round, *arguments: str) -> dict[str, Any]:
    (folder / "user.conf").write_text(user_conf)
    command = [sys.executable, str(_PROGRAM), str(folder), *arguments]
    environment = loadgen_environment(round_)
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
