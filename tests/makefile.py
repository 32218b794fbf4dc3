"""Runs `make` with a given environment only, so that settings of the make that runs the tests are not passed on."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from harness_llm.paths import CHECKOUT


def make(*words: str, folder: Path = CHECKOUT, **environ: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"]} | environ
    return subprocess.run(["make", *words], cwd=folder, env=environ, capture_output=True, text=True, check=False)


def variable(name: str) -> list[str]:
    """The words of a variable of the Makefile."""
    return make("--eval", f"shown: ; echo '$({name})'", "shown").stdout.split()


def targets() -> list[str]:
    """The targets of the Makefile."""
    return re.findall(r"^\.PHONY: (.+)$", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)


def stub_checkout(folder: Path, program: str) -> None:
    """Write a checkout whose Makefile and scripts run the shell program `program` as harness-llm."""
    for name in ("Makefile", "setup/harness_llm.sh", "submission/llama2_70b.sh"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, folder / name)
    files: Mapping[str, str] = {
        "setup/environments.sh": '[ "$1" = where ] || echo .venv/bin',
        ".venv/bin/harness-llm": program,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
