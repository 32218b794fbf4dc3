"""Child processes: each has a session, a log, a status channel and a lifeline of its own.

The status channel is a pipe of JSON lines from the child. The lifeline is the child's standard input: lines of it are
messages in JSON, and when it ends, the parent is gone and the child leaves at once, whatever it was doing.
"""

import contextlib
import ctypes
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

from harness_llm.protocol.mailbox import Mailbox
from harness_llm.protocol.sessions import members
from harness_llm.protocol.shared_memory import release

STATUS_VARIABLE = "HARNESS_LLM_STATUS_FD"
_PR_SET_PDEATHSIG = 1
_ENDING_S = 1.0  # what the rest of a session may take to end by itself, or once it was killed

_last: list[Callable[[], object]] = []
_leaving = threading.Lock()


@dataclass(frozen=True)
class Message:
    """One line from a child's status channel."""

    child: "Child"
    body: dict[str, Any]


@dataclass(frozen=True)
class Exit:
    """A child has ended; `code` is negative for a signal."""

    child: "Child"
    code: int


@dataclass(eq=False)
class Child:
    """A running child process; `end` becomes readable when it has ended.

    The end of `status` would not tell: a process that the child forked may hold it open.
    """

    name: str
    process: subprocess.Popen[bytes]
    status: FileIO
    end: FileIO
    log: Path
    _unread: bytes = field(default=b"", repr=False)

    def read(self) -> list[dict[str, Any]]:
        """The status lines that have arrived."""
        while not self.status.closed and (chunk := self.status.read(1 << 16)) is not None:
            self._unread += chunk
            if not chunk:
                self.status.close()
        *lines, self._unread = self._unread.split(b"\n")
        return [json.loads(line) for line in lines]

    def tell(self, **body: Any) -> None:
        """Send the child a message; one that has ended hears nothing."""
        with contextlib.suppress(BrokenPipeError):
            assert self.process.stdin  # noqa: S101 - `start` gives it a pipe
            self.process.stdin.write(json.dumps(body).encode() + b"\n")

    def last_lines(self, count: int = 12) -> str:
        """The end of the child's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])

    def stop(self, patience_s: float = 5.0) -> int:
        """Cut the lifeline, then kill the whole session if that was not enough; returns the exit code."""
        if self.process.stdin:
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_s)
            _await_end(self.process.pid)  # multiprocessing's tracker takes away what a killed child has left
        kill_session(self.process.pid)
        self.status.close()
        self.end.close()
        code = self.process.wait()
        _await_end(self.process.pid)
        return code


def kill_session(leader: int) -> None:
    """Kill whatever is left of the session that `leader` opened; no shared memory of it stays."""
    release(leader)
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def _await_end(session: int) -> None:
    """Wait a moment until no process of `session` is left."""
    deadline = time.monotonic() + _ENDING_S
    while any(members(session)) and time.monotonic() < deadline:
        time.sleep(0.01)


def start(
    module: str,
    arguments: Sequence[str],
    *,
    name: str,
    log: Path,
    environment: Mapping[str, str],
) -> Child:
    """Run `python -m module` as a child; its output goes to `log`."""
    reader, writer = os.pipe()
    with log.open("ab") as output:
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
    return Child(name, process, FileIO(reader), FileIO(os.pidfd_open(process.pid)), log)


def watch(children: Sequence[Child], timeout_s: float) -> Iterator[Message | Exit]:
    """What the children said, and which of them ended, within `timeout_s`."""
    with selectors.DefaultSelector() as selector:
        for child in children:
            for source in (child.status, child.end):
                if not source.closed:
                    selector.register(source, selectors.EVENT_READ, child)
        ready: dict[Child, None] = dict.fromkeys(key.data for key, _ in selector.select(timeout_s))
        for child in ready:
            code = child.process.poll()
            yield from (Message(child, body) for body in child.read())
            if code is not None:
                yield Exit(child, code)


class Parent:
    """The child's side: the status channel, and the watch over the lifeline; `told` is what came down that."""

    def __init__(self, clean_up: Path | None = None) -> None:
        """Start watching; `clean_up` is a folder to remove when the parent is gone."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        parent = os.getppid()
        # A signal may come from anybody; what is shared is cleaned up only where the parent is gone.
        signal.signal(signal.SIGTERM, lambda *_: _leave(clean_up if _is_gone(parent) else None))
        self._status = os.fdopen(int(os.environ[STATUS_VARIABLE]), "wb", buffering=0)
        self.told: Mailbox[dict[str, Any]] = Mailbox()
        threading.Thread(target=self._hold_lifeline, args=(clean_up,), daemon=True).start()

    def say(self, **body: Any) -> None:
        """Send one status line."""
        self._status.write(json.dumps(body).encode() + b"\n")

    def _hold_lifeline(self, clean_up: Path | None) -> None:
        unread = b""
        while chunk := os.read(0, 1 << 16):
            *lines, unread = (unread + chunk).split(b"\n")
            for line in lines:
                self.told.put(json.loads(line))
        _leave(clean_up)


def at_leave(function: Callable[[], object]) -> None:
    """Call `function` before this child ends because its parent says so or is gone; it must be quick."""
    _last.append(function)


def _is_gone(parent: int) -> bool:
    """Whether the parent has ended, within a moment: its threads end one by one, and already the first tells us."""
    deadline = time.monotonic() + _ENDING_S
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(0.01)
    return os.getppid() != parent


def _leave(clean_up: Path | None) -> None:
    """End now, and the engine's own processes too: threads inside C++ code cannot be asked to."""
    # A signal and the end of the lifeline come together: the first one's work is not cut short by the other.
    if not _leaving.acquire(blocking=False):
        return
    for function in _last:
        with contextlib.suppress(Exception):  # whatever happens, this process ends
            function()
    if clean_up:
        shutil.rmtree(clean_up, ignore_errors=True)
    kill_session(os.getpid())
