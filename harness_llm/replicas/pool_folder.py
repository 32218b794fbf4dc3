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

import zmq

from harness_llm.errors import EnvironmentMissing

PREFIX = "harness-llm-pool-"
LOCK = "lock"
OWNER_ONLY = 0o700
# The longest path of a socket is vLLM's: temporary folder, pool folder, and a UUID of 36 bytes.
LONGEST_ROOT = zmq.IPC_PATH_MAX_LEN - len(f"/{PREFIX}12345678/") - 36


class PoolFolder:
    """A folder that only its owner can enter, locked until this process exits."""

    def __init__(self) -> None:
        """Remove folders of killed pools, then create one.

        Raises:
            EnvironmentMissing: from `require_short_root`.
        """
        require_short_root()
        sweep()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.path.chmod(OWNER_ONLY)
        self._lock = _locked(self.path)

    def remove(self) -> None:
        """Remove the folder and its files."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def require_short_root() -> None:
    """Check that sockets can be created in the temporary folder.

    Raises:
        EnvironmentMissing: its path is too long.
    """
    root = tempfile.gettempdir()
    if len(os.fsencode(root)) > LONGEST_ROOT:
        raise EnvironmentMissing(
            "the path of the temporary folder is too long for sockets",
            where="TMPDIR",
            expected=f"at most {LONGEST_ROOT} bytes",
            found=f"{root} ({len(os.fsencode(root))} bytes)",
            hint="export TMPDIR=/tmp",
        )


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
