"""End a stage in a container with the process that started it, by a lock file in a mounted folder.

The host process holds the lock. When it ends, the kernel releases the lock, and the stage, which waits for it,
interrupts itself. PDEATHSIG does not work here: the daemon is the container's parent.
"""

import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "HARNESS_LLM_LIFELINE"


@contextmanager
def hold(file: Path) -> Iterator[None]:
    """Hold the lock on the host; the container must mount the folder of `file`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield
        finally:
            file.unlink()


def watch() -> None:
    """In the container, if VARIABLE is set: interrupt this process (SIGINT) when the lock is released."""
    if file := os.environ.get(VARIABLE):
        threading.Thread(target=_wait, args=(Path(file),), daemon=True).start()


def _wait(file: Path) -> None:
    with suppress(FileNotFoundError), file.open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
    os.kill(os.getpid(), signal.SIGINT)
