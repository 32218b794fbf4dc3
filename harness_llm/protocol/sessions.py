"""Sessions of child processes: their members, the shared memory that those map, and how to kill all of them."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

SHARED = "/dev/shm/"  # noqa: S108 - where Linux mounts shared memory
# multiprocessing's, torch's, NCCL's and RCCL's. A file of another name may belong to all users, as ROCm's locks do.
PREFIXES = ("psm_", "sem.mp-", "torch_", "nccl-")
_EXITED = ("Z", "X")
_EXIT_TIMEOUT_S = 1.0


def members(session: int) -> Iterator[int]:
    """Process ids in `session`, without zombies; includes processes whose parent has exited."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # exited meanwhile
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if os.getsid(int(entry.name)) == session and state not in _EXITED:
                    yield int(entry.name)


def await_exit(session: int) -> None:
    """Wait until `session` has no members, at most one second."""
    deadline = time.monotonic() + _EXIT_TIMEOUT_S
    while any(members(session)) and time.monotonic() < deadline:
        time.sleep(0.01)


def kill_session(leader: int) -> None:
    """Kill the session that `leader` opened and unlink its shared memory."""
    _unlink_shared_memory(leader)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _unlink_shared_memory(session: int) -> None:
    """Unlink the shared memory that members of `session` map: it would outlive a killed process."""
    for file in {file for pid in members(session) for file in _mapped(pid)}:
        file.unlink(missing_ok=True)


def _mapped(pid: int) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            _, found, name = line.partition(SHARED)
            if found and name.startswith(PREFIXES) and not name.endswith(" (deleted)"):
                yield Path(SHARED + name)
