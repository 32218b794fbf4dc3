"""A process in a container that ends with its host process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness_llm.containers import lifeline
from harness_llm.paths import CHECKOUT

pytestmark = pytest.mark.processes

INNER = """
import time
from harness_llm.containers import lifeline
lifeline.watch()
print("ready", flush=True)
time.sleep(60)
"""
OUTER = """
import sys, time
from pathlib import Path
from harness_llm.containers import lifeline
with lifeline.hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def start(program: str, *words: str, **environment: str) -> "subprocess.Popen[str]":
    """A process that Ctrl-C ends, also where the shell of the tests ignores it."""
    command = ["env", "--default-signal=INT", sys.executable, "-c", program, *words]
    process = subprocess.Popen(
        command,
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    process.stdout.readline()
    return process


def test_program_in_the_container_is_interrupted_when_its_host_process_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "lifeline"
    outer = start(OUTER, str(file))
    inner = start(INNER, **{lifeline.VARIABLE: str(file)})
    assert inner.poll() is None
    outer.kill()
    outer.communicate()
    inner.communicate(timeout=30)
    assert inner.returncode == -signal.SIGINT


def test_program_whose_host_process_has_ended_is_interrupted_at_start(tmp_path: Path) -> None:
    inner = start(INNER, **{lifeline.VARIABLE: str(tmp_path / "gone")})
    inner.communicate(timeout=30)
    assert inner.returncode == -signal.SIGINT


def test_lifeline_file_is_removed(tmp_path: Path) -> None:
    with lifeline.hold(tmp_path / "lifeline"):
        assert (tmp_path / "lifeline").exists()
    assert not (tmp_path / "lifeline").exists()
