"""Shared memory that processes hold by name; it outlives those that are killed, unless somebody takes the name away."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from harness_llm.protocol.sessions import members

SHARED = "/dev/shm/"  # noqa: S108 - where Linux has it
# multiprocessing's, torch's, NCCL's and RCCL's: of other names a file may be everybody's, as ROCm's locks are.
PREFIXES = ("psm_", "sem.mp-", "torch_", "nccl-")


def release(session: int) -> None:
    """Take away the names of all shared memory that a process of `session` has mapped; those that have it keep it."""
    for file in {file for pid in members(session) for file in _mapped(pid)}:
        file.unlink(missing_ok=True)


def _mapped(pid: int) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            _, found, name = line.partition(SHARED)
            if found and name.startswith(PREFIXES) and not name.endswith(" (deleted)"):
                yield Path(SHARED + name)
