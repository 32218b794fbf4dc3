"""Guard: runs a command that cannot watch the control channel itself, and kills it when the guard's parent exits.

Run as `python -m harness_llm.protocol.guard FOLDER COMMAND …`; FOLDER is removed when the parent has exited. Two
commands need a guard: a server is not our program, and its engine core outlives its API server; a replica on a Ray node
may be stopped (SIGSTOP) while the pipeline, which would kill it, runs on another node.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading

import psutil

from harness_llm.protocol.child_processes import STATUS_VARIABLE
from harness_llm.protocol.sessions import kill_session

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_S = 4  # less than the 5 s that Child.stop waits for the guard


def main() -> None:
    """Run the command and exit with its code, 128 plus the number of a signal."""
    folder, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # descendants of the command stay descendants of the guard
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, pass_fds=[int(os.environ[STATUS_VARIABLE])], start_new_session=True
    )
    signal.signal(signal.SIGTERM, lambda *_: kill_session(process.pid))
    parent_exited = threading.Event()
    threading.Thread(target=_await_parent, args=(process.pid, parent_exited), daemon=True).start()
    code = process.wait()
    kill_session(process.pid)
    _kill_descendants()
    if parent_exited.is_set():
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(code if code >= 0 else 128 - code)


def _await_parent(session: int, exited: threading.Event) -> None:
    while os.read(0, 1 << 16):
        pass
    exited.set()
    kill_session(session)


def _kill_descendants() -> None:
    """Kill descendants that opened sessions of their own, and wait until they have exited."""
    descendants = psutil.Process().children(recursive=True)
    for process in descendants:
        process.kill()
    psutil.wait_procs(descendants, _PATIENCE_S)


if __name__ == "__main__":
    main()
