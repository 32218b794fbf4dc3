"""Machine-wide lock of a set of devices: one command at a time."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness_llm.errors import EnvironmentMissing

LOCKS = Path(tempfile.gettempdir()) / "harness-llm"
"""Folder of the lock files; mounted in containers, so that locks hold across containers and the machine."""


@contextmanager
def hold(devices: str, who: str, folder: Path | None = None) -> Iterator[None]:
    """Hold the lock of `devices`; the error of another process that wants it shows `who`.

    Raises:
        EnvironmentMissing: another process holds the lock.
    """
    path = (folder or make_locks()) / f"{devices}.lock"
    with os.fdopen(_open(path), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise EnvironmentMissing(
                f"another harness-llm process uses {devices}",
                where=str(path),
                found=file.read().strip(),
                hint="wait for it, or stop it",
            ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()}: {who}\n")
        file.flush()
        yield
        file.truncate(0)


def make_locks(folder: Path = LOCKS) -> Path:
    """Create the folder of the locks, writable for all users; return it."""
    folder.mkdir(exist_ok=True)
    if folder.stat().st_uid == os.getuid():
        folder.chmod(0o1777)
    return folder


def _open(path: Path) -> int:
    """Open a lock file that every user may lock; Linux refuses O_CREAT on another user's file in a sticky folder."""
    try:
        return os.open(path, os.O_RDWR)
    except FileNotFoundError:
        handle = os.open(path, os.O_RDWR | os.O_CREAT)
        os.fchmod(handle, 0o666)
        return handle
