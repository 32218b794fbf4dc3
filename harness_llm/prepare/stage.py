"""A stage in a process of its own: JSON lines of progress on its standard output, its standard error kept as a log."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness_llm.config.assets import Report
from harness_llm.errors import RunFailed
from harness_llm.paths import CHECKOUT

LAST_LINES = 12
PATIENCE_S = 5
# Threads wait for each other asleep: awake, they made training six times slower while two cores had other work too.
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


def run_stage(command: Sequence[str], log: Path, report: Report) -> None:
    """Run `command` to its end and pass on what it says.

    The child shares our terminal, so that Ctrl-C reaches it; whatever ends us otherwise closes its standard output,
    and its next line ends it.

    Raises:
        RunFailed: it did not end with 0; with the last lines of `log`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as errors:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=CHECKOUT, env=os.environ | ENVIRONMENT
        )
        try:
            _pass_on(child, report)
            code = child.wait()
        finally:
            _end(child)
    if code:
        raise RunFailed(
            f"the stage {log.stem} failed",
            where=str(log),
            found="\n".join([f"exit code {code}", *log.read_text(errors="replace").splitlines()[-LAST_LINES:]]),
        )


def _pass_on(child: subprocess.Popen[str], report: Report) -> None:
    for line in child.stdout or ():
        if line.startswith("{"):  # libraries may print too
            progress = json.loads(line)
            report(f"{progress['stage']}: {progress['text']}", progress["done"])


def _end(child: subprocess.Popen[str]) -> None:
    if child.stdout:
        child.stdout.close()
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
