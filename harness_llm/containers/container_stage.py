"""Run a stage in a container: show and log its output, forward an interrupt once, return its exit code.

Docker's client creates the container, because it parses the user's DOCKER_ARGS. The daemon's API starts and follows it,
because a client in between would forward signals itself and hide the reason of an exit.
"""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import closing, contextmanager, suppress
from io import RawIOBase
from pathlib import Path
from typing import Any

from docker.errors import APIError, NotFound

from harness_llm.containers.daemon import Daemon, refusal
from harness_llm.errors import INTERRUPTED, RunFailed

STOP_TIMEOUT_S = 90  # for an interrupted stage to end its children
_EXIT_CODES = (0, 1, 2, 3, 4, INTERRUPTED)  # of harness-llm, which has printed its error
_KILLED = 137
_TAIL = 12


def run_stage(daemon: Daemon, name: str, create: Sequence[str], log: Path, *, terminal: bool) -> int:
    """Create the container `name` with the command `create` and run it; return harness-llm's exit code.

    Args:
        log: file for the container's output.
        terminal: whether the container has a terminal, which merges standard output and standard error.

    Raises:
        EnvironmentMissing: the container cannot be created or started.
        RunFailed: exit code that is not one of harness-llm's; `found` has the last lines of `log`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(3) as threads, log.open("wb", buffering=0) as kept, _interrupting():
        try:
            _create(create)
            code = _follow(daemon, name, kept, threads, terminal=terminal)
        finally:
            _remove(daemon, name)
    if code not in _EXIT_CODES:
        raise _abnormal_exit(code, log)
    return code


def _create(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise refusal(done.stderr, where=command[0])


def _follow(daemon: Daemon, container: str, log: RawIOBase, threads: ThreadPoolExecutor, *, terminal: bool) -> int:
    """Attach and wait before the start, so that no output of a short container is lost; return the exit code."""
    api = daemon.client.api
    with closing(api.attach(container, stream=True, demux=True)) as output:
        shown = threads.submit(_show, output, log)
        ended = threads.submit(api.wait, container, timeout=None, condition="next-exit")
        started = threads.submit(api.start, container)
        try:
            code = _wait(daemon, container, started, ended, terminal=terminal)
        except APIError as error:
            raise refusal(str(error.explanation), where=container) from error
        shown.result()
        return code


def _wait(daemon: Daemon, container: str, started: "Future[None]", ended: "Future[Any]", *, terminal: bool) -> int:
    """Return the container's exit code, 130 after an interrupt."""
    try:
        started.result()
        if terminal:
            _follow_terminal_size(daemon, container)
        return int(ended.result()["StatusCode"])
    except KeyboardInterrupt:
        return _stop(daemon, container, ended)


def _stop(daemon: Daemon, container: str, ended: "Future[Any]") -> int:
    """Interrupt the program in the container; kill it after STOP_TIMEOUT_S, or after a second interrupt."""
    with suppress(APIError):  # it has just exited
        try:
            sys.stderr.write("stopping the container\n")
            daemon.client.api.kill(container, "SIGINT")
            ended.result(STOP_TIMEOUT_S)
        except (KeyboardInterrupt, FutureTimeout):
            daemon.client.api.kill(container)
    return INTERRUPTED


def _show(output: Iterable[tuple[bytes | None, bytes | None]], log: RawIOBase) -> None:
    """Copy the container's output to standard output, standard error and `log`.

    If the terminal or the pipe is gone, only to `log`: output that is not read would stop the container.
    """
    for chunk in output:
        for data, stream in zip(chunk, (sys.stdout, sys.stderr), strict=True):
            if data:
                log.write(data)
                with suppress(OSError):
                    stream.flush()  # keep the order with this process's text
                    stream.buffer.write(data)
                    stream.flush()


def _follow_terminal_size(daemon: Daemon, container: str) -> None:
    """Set the size of the container's terminal to that of this terminal, now and after each change."""

    def resize(*_: object) -> None:
        size = shutil.get_terminal_size()
        with suppress(APIError):  # it has just exited
            daemon.client.api.resize(container, size.lines, size.columns)

    resize()
    signal.signal(signal.SIGWINCH, resize)


def not_ignored(*numbers: signal.Signals) -> list[signal.Signals]:
    """Return the signals that the caller of this program has not disabled; nohup disables SIGHUP."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def _interrupting() -> Iterator[None]:
    """Raise KeyboardInterrupt also for SIGTERM and SIGHUP, so that the container ends first."""
    numbers = not_ignored(signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _remove(daemon: Daemon, container: str) -> None:
    """Remove the container; started containers remove themselves (`--rm`): wait for that."""
    api = daemon.client.api
    with suppress(NotFound):
        with suppress(APIError):
            api.remove_container(container, force=True)
        api.wait(container, condition="removed", timeout=STOP_TIMEOUT_S)


def _abnormal_exit(code: int, log: Path) -> RunFailed:
    last = log.read_text(errors="replace").splitlines()[-_TAIL:]
    return RunFailed(
        "stage killed" if code == _KILLED else "stage ended without harness-llm's exit code",
        where=str(log),
        found="\n".join([f"exit code {code}", *last]),
        hint="look for out of memory in journalctl --dmesg" if code == _KILLED else "",
    )
