"""Folder of a replica pool: sockets, specifications, and temporary files of engines.

It is removed with the replica pool. If the pool and its children were killed together, the next replica pool removes
the folder, because its lock is free.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

PREFIX = "harness-llm-pool-"
LOCK = "lock"
OWNER_ONLY = 0o700


class PoolFolder:
    """A folder that only its owner can enter, locked until this process exits."""

    def __init__(self) -> None:
        """Remove folders of killed pools, then create one."""
        sweep()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.path.chmod(OWNER_ONLY)
        self._lock = _locked(self.path)

    def remove(self) -> None:
        """Remove the folder and its files."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _locked(folder: Path) -> IO[str]:
    """Create a lock file that is locked before it gets its name."""
    lock = (folder / f"{LOCK}.new").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / f"{LOCK}.new").rename(folder / LOCK)
    return lock


def sweep() -> None:
    """Remove this user's folders whose replica pools have exited."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):  # removed by another process meanwhile
            if lock.stat().st_uid == os.getuid() and _is_free(lock):
                shutil.rmtree(lock.parent, ignore_errors=True)


def _is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
