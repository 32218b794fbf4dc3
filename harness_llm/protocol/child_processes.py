"""Child processes: each has its own session, log, status channel and control channel.

The status channel is a pipe with JSON lines from the child. The control channel is the child's standard input, with
JSON lines from the parent. A child ends with its parent by one mechanism: when the control channel closes, it exits.
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

from harness_llm.hardware.kernel_events import KernelEvents
from harness_llm.protocol.mailbox import Mailbox
from harness_llm.protocol.sessions import await_exit, kill_session
from harness_llm.protocol.status_writer import StatusWriter

STATUS_VARIABLE = "HARNESS_LLM_STATUS_FD"
PATIENCE_S = 5.0
# A killed process releases the memory of its devices before it exits. One that a driver blocks never exits.
KILL_TIMEOUT_S = 60.0

_exit_functions: list[Callable[[], object]] = []
_exiting = threading.Lock()


@dataclass(frozen=True)
class Message:
    """One line from a child's status channel."""

    child: "Child"
    body: dict[str, Any]


@dataclass(frozen=True)
class Exit:
    """Exit of a child; `code` is negative for a signal."""

    child: "Child"
    code: int


@dataclass(eq=False)
class Child:
    """A running child process.

    Attributes:
        exited: a pidfd, readable once the process has exited. The end of `status` does not show that: a process that
            the child forked may hold it open.
        log_start: size of `log` when the process was started.
        kernel: events of the kernel since the process was started.
    """

    name: str
    process: subprocess.Popen[bytes]
    status: FileIO
    exited: FileIO
    log: Path
    log_start: int
    kernel: KernelEvents
    _unread: bytes = field(default=b"", repr=False)

    def read(self) -> list[dict[str, Any]]:
        """Return the status lines that have arrived."""
        while not self.status.closed and (chunk := self.status.read(1 << 16)) is not None:
            self._unread += chunk
            if not chunk:
                self.status.close()
        *lines, self._unread = self._unread.split(b"\n")
        return [json.loads(line) for line in lines]

    def send(self, **body: Any) -> None:
        """Send the child a message; ignored once it has exited."""
        with contextlib.suppress(BrokenPipeError):
            assert self.process.stdin  # noqa: S101 - `start` gives it a pipe
            self.process.stdin.write(_line(body))

    def output(self) -> str:
        """Return what the process has written to its log; earlier processes may have written to the same file."""
        return self.log.read_bytes()[self.log_start :].decode(errors="replace")

    def last_lines(self, count: int = 12) -> str:
        """Return the end of the child's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])

    def stop(self, patience_s: float = PATIENCE_S) -> int | None:
        """Stop this child as `stop_all` does; return the exit code, None if the process has not exited."""
        stop_all([self], patience_s)
        return self.process.returncode


def stop_all(children: Sequence[Child], patience_s: float = PATIENCE_S) -> None:
    """Close the control channels of `children`, and kill the sessions `patience_s` later.

    All exit at the same time, because the driver needs seconds to free the memory of a device. The wait for killed
    processes ends after KILL_TIMEOUT_S.
    """
    for child in children:
        if child.process.stdin:
            child.process.stdin.close()
    _await_exits(children, patience_s)
    for child in children:
        kill_session(child.process.pid)
        child.status.close()
        child.exited.close()
    _await_exits(children, KILL_TIMEOUT_S)


def _await_exits(children: Sequence[Child], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(max(deadline - time.monotonic(), 0))
            await_exit(child.process.pid)  # multiprocessing's resource tracker unlinks what a killed child has left


def start(
    module: str,
    arguments: Sequence[str],
    *,
    name: str,
    log: Path,
    environment: Mapping[str, str],
) -> Child:
    """Run `python -m module` as a child; append its output to `log`."""
    reader, writer = os.pipe()
    kernel = KernelEvents()
    with log.open("ab") as output:
        log_start = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            bufsize=0,
            pass_fds=[writer],
            env={**os.environ, **environment, STATUS_VARIABLE: str(writer)},
            start_new_session=True,
        )
    os.close(writer)
    os.set_blocking(reader, False)
    return Child(name, process, FileIO(reader), FileIO(os.pidfd_open(process.pid)), log, log_start, kernel)


def watch(children: Sequence[Child], timeout_s: float) -> Iterator[Message | Exit]:
    """Wait up to `timeout_s` for events; yield status messages and exits of the children."""
    with selectors.DefaultSelector() as selector:
        for child in children:
            for source in (child.status, child.exited):
                if not source.closed:
                    selector.register(source, selectors.EVENT_READ, child)
        ready: dict[Child, None] = dict.fromkeys(key.data for key, _ in selector.select(timeout_s))
        for child in ready:
            code = child.process.poll()
            yield from (Message(child, body) for body in child.read())
            if code is not None:
                yield Exit(child, code)


class Parent:
    """The child's connection to its parent.

    Attributes:
        messages: received over the control channel.
    """

    def __init__(self, clean_up: Path | None = None) -> None:
        """Watch the control channel; when it closes, remove the folder `clean_up` and exit."""
        # Any process may send SIGTERM: the shared folder is removed only if the parent is gone.
        signal.signal(signal.SIGTERM, lambda *_: _exit(None))
        self._status = StatusWriter(int(os.environ[STATUS_VARIABLE]))
        self.messages: Mailbox[dict[str, Any]] = Mailbox()
        threading.Thread(target=self._read_control_channel, args=(clean_up,), daemon=True).start()

    def send(self, **body: Any) -> None:
        """Send one status message; wait while the pipe is full because the parent does not read."""
        self._status.send(_line(body))

    def offer(self, **body: Any) -> None:
        """Send one status message without waiting; discard it while the pipe is full."""
        self._status.offer(_line(body))

    def _read_control_channel(self, clean_up: Path | None) -> None:
        unread = b""
        while chunk := os.read(0, 1 << 16):
            *lines, unread = (unread + chunk).split(b"\n")
            for line in lines:
                self.messages.put(json.loads(line))
        _exit(clean_up)


def _line(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode() + b"\n"


def before_exit(function: Callable[[], object]) -> None:
    """Call `function`, which must be fast, before this child exits with its parent or by SIGTERM."""
    _exit_functions.append(function)


def _exit(clean_up: Path | None) -> None:
    """Kill this session: threads in C++ code of an engine cannot be interrupted otherwise."""
    # SIGTERM and the end of the control channel may come together; the first one completes.
    if not _exiting.acquire(blocking=False):
        return
    for function in _exit_functions:
        with contextlib.suppress(Exception):  # this process exits even if a function fails
            function()
    if clean_up:
        shutil.rmtree(clean_up, ignore_errors=True)
    kill_session(os.getpid())
