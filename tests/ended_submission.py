"""A submission that is ended in its Server accuracy run."""

import hashlib
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terminal import Command, Ended, Terminal
from waiting import wait_until

from harness_llm.loadgen.logs import DETAIL
from harness_llm.runs.record import Run, State, find_runs

SYSTEM = "pytest-box"
NAMES = ("--company", "Acme", "--system-name", SYSTEM)
SUBMIT = ("submit", *NAMES)


@dataclass(frozen=True)
class Stop:
    """A submission that ended in its Server accuracy run.

    Attributes:
        children: number of its processes before.
        left: its folders of sockets that remain.
        states: of all Server accuracy runs.
        plan: output of `submit --dry-run` afterwards.
    """

    end: Ended
    children: int
    left: list[Any]
    states: list[State]
    plan: str


def digests(folder: Path) -> dict[str, str]:
    """sha256 by path."""
    files = (f for f in sorted(folder.rglob("*")) if f.is_file())
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def finished(logs: Path) -> dict[str, str]:
    """The files of all runs that have ended."""
    ended = {str(run.path.relative_to(logs)) for run in find_runs(logs) if run.record}
    return {path: digest for path, digest in digests(logs).items() if str(Path(path).parent) in ended}


def server_accuracy(terminal: Terminal) -> list[Run]:
    runs = find_runs(terminal.workspace.logs, SYSTEM)
    return [run for run in runs if (run.run_key.scenario, run.run_key.test) == ("Server", "accuracy")]


def in_server_accuracy(terminal: Terminal, command: Command) -> bool:
    """Whether LoadGen is answering its queries; the run lasts 20 s and more."""
    assert command.process.poll() is None, command.wait().err
    running = [run.path / DETAIL for run in server_accuracy(terminal) if run.state is State.RUNNING]
    return any(log.is_file() and log.stat().st_size for log in running)


def stop(terminal: Terminal, command: Command, number: signal.Signals) -> Stop:
    """End `command` in its Server accuracy run and look at what is left."""
    wait_until(lambda: in_server_accuracy(terminal, command), 900, "a Server accuracy run")
    children = len(terminal.processes()) - 1
    command.process.send_signal(number)
    end = command.wait(300)
    # A killed command waits for no child, an interrupted one for its children but not for helpers that they started.
    wait_until(lambda: not terminal.processes(), 300, "the end of the children")
    left = terminal.socket_folders()
    plan = terminal.run(*SUBMIT, "--dry-run")
    assert plan.code == 0, plan.err
    return Stop(end, children, left, [run.state for run in server_accuracy(terminal)], plan.err)
