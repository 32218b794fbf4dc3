"""Run a preparation stage as a child process: progress as JSON lines on standard output, standard error in a log."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness_llm.config.assets import Report
from harness_llm.errors import RunFailed
from harness_llm.paths import CHECKOUT

LAST_LINES = 12
PATIENCE_S = 5
KILLED = "the kernel kills a process when memory is exhausted (dmesg); quantization loads the whole original checkpoint"
# passive: with busy waiting, training on two loaded cores took six times as long.
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


def run_stage(command: Sequence[str], log: Path, report: Report) -> None:
    """Run `command` and report its progress.

    The child shares this process's terminal, so Ctrl-C reaches it. If this process is killed, the child's standard
    output closes and its next line ends it.

    Raises:
        RunFailed: the exit code is not 0; `found` has the last lines of `log`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as errors:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=CHECKOUT, env=os.environ | ENVIRONMENT
        )
        try:
            _report(child, report)
            code = child.wait()
        finally:
            _end(child)
    if code:
        raise RunFailed(
            f"stage {log.stem} failed",
            where=str(log),
            found="\n".join([f"exit code {code}", *log.read_text(errors="replace").splitlines()[-LAST_LINES:]]),
            hint=KILLED if code == -signal.SIGKILL else "",
        )


@contextmanager
def compiling(module: str) -> Iterator[None]:
    """Import `module` in a child of low priority, so that Python compiles it and what it imports for later processes.

    No child is started if `module` is compiled, or if Python writes no bytecode. Errors are ignored: a process that
    needs the module reports them. The child ends with the block at the latest.
    """
    if sys.dont_write_bytecode or _is_compiled(module):
        yield
        return
    command = ["nice", "-n", "19", sys.executable, "-c", f"import {module}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=CHECKOUT) as child:
        try:
            yield
        finally:
            _end(child)


def _is_compiled(module: str) -> bool:
    found = find_spec(module)
    return bool(found and found.cached and Path(found.cached).is_file())


def _report(child: subprocess.Popen[str], report: Report) -> None:
    for line in child.stdout or ():
        if line.startswith("{"):  # libraries print other lines
            progress = json.loads(line)
            report(f"{progress['stage']}: {progress['text']}", progress["done"])


def _end(child: subprocess.Popen[Any]) -> None:
    if child.stdout:
        child.stdout.close()
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
