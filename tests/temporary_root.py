"""The folder of the tests' temporary files."""

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 - mkdtemp makes folders in it
ROOM = 8 * 2**30


def temporary_root() -> str:
    """Return the folder that the environment names, else one in memory if it has room, else the system's.

    Tests make and remove many small files; on a disk this takes about half of the CPU time of make test-quick.
    """
    named = os.environ.get("PYTEST_DEBUG_TEMPROOT") or os.environ.get("TMPDIR")
    return named or (str(MEMORY) if _usable() else tempfile.gettempdir())


def _usable() -> bool:
    """Whether there is room in memory and programs can be started from there."""
    if not os.access(MEMORY, os.W_OK):
        return False
    return not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC and shutil.disk_usage(MEMORY).free > ROOM
