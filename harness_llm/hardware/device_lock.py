"""One submission at a time on one set of devices."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness_llm.errors import EnvironmentMissing

LOCKS = Path(tempfile.gettempdir()) / "harness-llm"
"""Where locks stand; containers show it inside, so that they and the machine itself know of each other."""


@contextmanager
def hold(devices: str, who: str, folder: Path | None = None) -> Iterator[None]:
    """Hold the machine-wide lock of `devices`; `who` is what a second comer is told.

    Raises:
        EnvironmentMissing: another submission holds it.
    """
    path = (folder or make_locks()) / f"{devices}.lock"
    with os.fdopen(_open(path), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise EnvironmentMissing(
                f"another submission is running on {devices}",
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
    """The folder of the locks, there for all users of the machine."""
    folder.mkdir(exist_ok=True)
    if folder.stat().st_uid == os.getuid():
        folder.chmod(0o1777)
    return folder


def _open(path: Path) -> int:
    """A lock that every user of the machine may hold; Linux refuses O_CREAT on another's file in a sticky folder."""
    try:
        return os.open(path, os.O_RDWR)
    except FileNotFoundError:
        handle = os.open(path, os.O_RDWR | os.O_CREAT)
        os.fchmod(handle, 0o666)
        return handle
