"""A command in a container of its own, followed to its end: what it says is shown and kept, and Ctrl-C reaches it once.

Docker's own client makes the container, as it reads the arguments that users know; the daemon's interface does the
rest. So no client stands in between that hands signals on by itself, and what happened is known.
"""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from contextlib import closing, contextmanager, suppress
from io import RawIOBase
from pathlib import Path
from typing import Any

from docker.errors import APIError, NotFound

from harness_llm.containers.daemon import Daemon
from harness_llm.containers.refusal import refusal
from harness_llm.errors import INTERRUPTED, RunFailed

PATIENCE_S = 90  # what an interrupted stage may take to end its children
_OWN = (0, 1, 2, 3, 4, INTERRUPTED)  # how harness-llm ends; it has said why
_KILLED = 137
_TAIL = 12


def run_stage(daemon: Daemon, name: str, create: Sequence[str], log: Path, *, terminal: bool) -> int:
    """Run the container `name` that the command `create` makes to its end; returns the exit code of harness-llm in it.

    Args:
        log: keeps all that it says.
        terminal: whether the container has a terminal: then both of its outputs are one.

    Raises:
        EnvironmentMissing: it cannot be made or started.
        RunFailed: it ended as harness-llm does not; with the last lines of `log`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(3) as threads, log.open("wb", buffering=0) as kept, _interrupting():
        try:
            _create(create)
            code = _follow(daemon, name, kept, threads, terminal=terminal)
        finally:
            _remove(daemon, name)
    if code not in _OWN:
        raise _strange(code, log)
    return code


def _create(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise refusal(done.stderr, where=command[0])


def _follow(daemon: Daemon, container: str, log: RawIOBase, threads: ThreadPoolExecutor, *, terminal: bool) -> int:
    """Everything is asked for before the start, so that nothing is missed of a container that ends at once."""
    api = daemon.client.api
    with closing(api.attach(container, stream=True, demux=True)) as output:
        shown = threads.submit(_show, output, log)
        ended = threads.submit(api.wait, container, timeout=None, condition="next-exit")
        started = threads.submit(api.start, container)
        try:
            code = _end(daemon, container, started, ended, terminal=terminal)
        except APIError as error:
            raise refusal(str(error.explanation), where=container) from error
        shown.result()
        return code


def _end(daemon: Daemon, container: str, started: "Future[None]", ended: "Future[Any]", *, terminal: bool) -> int:
    """The exit code of the container, 130 after an interruption."""
    try:
        started.result()
        if terminal:
            _fit(daemon, container)
        return int(ended.result()["StatusCode"])
    except KeyboardInterrupt:
        return _stop(daemon, container, ended)


def _stop(daemon: Daemon, container: str, ended: "Future[Any]") -> int:
    """Interrupt the program in the container; kill it after PATIENCE_S, or at once when interrupted again."""
    with suppress(APIError):  # it has just ended
        try:
            sys.stderr.write("stopping the container\n")
            daemon.client.api.kill(container, "SIGINT")
            ended.result(PATIENCE_S)
        except (KeyboardInterrupt, Late):
            daemon.client.api.kill(container)
    return INTERRUPTED


def _show(output: Iterable[tuple[bytes | None, bytes | None]], log: RawIOBase) -> None:
    """Pass on what comes on standard output and standard error; a container's terminal is the former."""
    for chunk in output:
        for data, stream in zip(chunk, (sys.stdout, sys.stderr), strict=True):
            if data:
                log.write(data)
                stream.flush()  # text of this process comes first
                stream.buffer.write(data)
                stream.flush()


def _fit(daemon: Daemon, container: str) -> None:
    """Make its terminal as large as ours, and keep it so."""

    def resize(*_: object) -> None:
        size = shutil.get_terminal_size()
        with suppress(APIError):  # it has just ended
            daemon.client.api.resize(container, size.lines, size.columns)

    resize()
    signal.signal(signal.SIGWINCH, resize)


@contextmanager
def _interrupting() -> Iterator[None]:
    """What ends this process, but for SIGKILL, ends the container first."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _remove(daemon: Daemon, container: str) -> None:
    """Those that were started remove themselves, which is waited for."""
    api = daemon.client.api
    with suppress(NotFound):
        with suppress(APIError):
            api.remove_container(container, force=True)
        api.wait(container, condition="removed", timeout=PATIENCE_S)


def _strange(code: int, log: Path) -> RunFailed:
    last = log.read_text(errors="replace").splitlines()[-_TAIL:]
    return RunFailed(
        "a stage was killed" if code == _KILLED else "a stage ended before harness-llm did",
        where=str(log),
        found="\n".join([f"exit code {code}", *last]),
        hint="did memory run out? journalctl --dmesg tells" if code == _KILLED else "",
    )
