"""The folder of a replica pool: sockets, specs, and temporary files of engines.

It is removed with the replica pool. When a replica pool and its parent were killed at once, the next replica pool
removes the folder: its lock is free.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

PREFIX = "harness-llm-replica pool-"
LOCK = "lock"
OWNER_ONLY = 0o700


class PoolFolder:
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
    """Remove the folders of ours whose replica pools are gone."""
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
