"""The processes of a session: all that a child has started, whoever their parent is by now."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_ENDED = ("Z", "X")


def members(session: int) -> Iterator[int]:
    """The process ids of those that have not ended."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if os.getsid(int(entry.name)) == session and state not in _ENDED:
                    yield int(entry.name)
