"""The folder of a fleet: its sockets, its specs, and what its engines leave lying about.

It is removed with the fleet. Where a fleet and its parent were killed at once, nobody was left to do that: the next one
does, as the lock in it then is free.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

PREFIX = "harness-llm-fleet-"
LOCK = "lock"
OWNER_ONLY = 0o700


class FleetFolder:
    """A folder that nobody else may enter, locked as long as this process lives."""

    def __init__(self) -> None:
        """Remove those that were left behind, then make one."""
        sweep()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.path.chmod(OWNER_ONLY)
        self._lock = _locked(self.path)

    def remove(self) -> None:
        """Remove it with all that it holds."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _locked(folder: Path) -> IO[str]:
    """A lock that is held from the moment on at which it has its name."""
    lock = (folder / f"{LOCK}.new").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / f"{LOCK}.new").rename(folder / LOCK)
    return lock


def sweep() -> None:
    """Remove the folders of ours whose fleets are gone."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):  # another one sweeps too
            if lock.stat().st_uid == os.getuid() and _is_free(lock):
                shutil.rmtree(lock.parent, ignore_errors=True)


def _is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
