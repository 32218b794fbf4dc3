"""What ties a stage in a container to the process that started it: a file that stays locked while that process lives.

The kernel lets go of the lock however the process ends, and tells the one who waits for it inside.
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
    """The outer end: lock `file`, which must be seen inside."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield
        finally:
            file.unlink()


def watch() -> None:
    """The inner end: where a lifeline is named, its end interrupts this process as Ctrl-C does."""
    if file := os.environ.get(VARIABLE):
        threading.Thread(target=_wait, args=(Path(file),), daemon=True).start()


def _wait(file: Path) -> None:
    with suppress(FileNotFoundError), file.open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
    os.kill(os.getpid(), signal.SIGINT)
