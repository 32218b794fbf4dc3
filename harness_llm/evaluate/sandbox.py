"""Run a sandboxed program that executes model-generated code; it ends with its parent process."""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, NamedTuple

from harness_llm.errors import RunFailed

WATCH = """
import os, threading
def _end_with_standard_input():
    os.read(0, 1)
    os._exit(1)
threading.Thread(target=_end_with_standard_input, daemon=True).start()
"""
"""Python code that exits when standard input closes, which happens when the parent process ends.

It reads the file descriptor, because forked processes would inherit a locked `sys.stdin`.
"""

NEVER = threading.Event()
_POLL_S = 0.1
_OUTPUT_BYTES = 1 << 20


class Finished(NamedTuple):
    """Exit code, and the last MiB of stdout and stderr."""

    code: int
    out: str
    err: str


def with_variables(command: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Prefix `command` so that `variables` are its entire environment."""
    return ["env", "--ignore-environment", *(f"{name}={value}" for name, value in variables.items()), *command]


def run_sandboxed(command: Sequence[str], text: str, seconds: float, stop: threading.Event = NEVER) -> Finished:
    """Run a sandbox command with `text` on standard input, which stays open until the sandbox exits.

    Args:
        seconds: time limit.
        stop: event that ends the sandbox.

    Raises:
        RunFailed: the time limit was exceeded, or `stop` was set.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=out, stderr=err)
        with process:
            try:
                threading.Thread(target=_feed, args=(process.stdin, text), daemon=True).start()
                _wait(process, seconds, stop)
            finally:
                process.kill()
        return Finished(process.returncode, _tail(out), _tail(err))


def _feed(pipe: IO[bytes] | None, text: str) -> None:
    rest = memoryview(text.encode())
    with suppress(OSError, ValueError):  # the sandbox exited early; its exit code is reported
        while pipe and rest:
            rest = rest[pipe.write(rest) :]


def _wait(process: "subprocess.Popen[bytes]", seconds: float, stop: threading.Event) -> None:
    limit = time.monotonic() + seconds
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_S)
            return
        if stop.is_set():
            raise RunFailed("scoring was interrupted")
        if time.monotonic() > limit:
            raise RunFailed("time limit of the scoring sandbox exceeded", expected=f"at most {seconds:.0f} s")


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _OUTPUT_BYTES))
    return file.read().decode(errors="replace")
