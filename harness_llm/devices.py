"""One submission at a time on one set of devices."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness_llm.errors import EnvironmentMissing


@contextmanager
def hold(devices: str, who: str, folder: Path | None = None) -> Iterator[None]:
    """Hold the machine-wide lock of `devices`; `who` is what a second comer is told.

    Raises:
        EnvironmentMissing: another submission holds it.
    """
    path = (folder or Path(tempfile.gettempdir())) / f"harness-llm-{devices}.lock"
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


def _open(path: Path) -> int:
    """A lock that every user of the machine may hold; Linux refuses O_CREAT on another's file in a sticky folder."""
    try:
        return os.open(path, os.O_RDWR)
    except FileNotFoundError:
        handle = os.open(path, os.O_RDWR | os.O_CREAT)
        os.fchmod(handle, 0o666)
        return handle
