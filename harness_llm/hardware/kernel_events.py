"""Events of the kernel since a point in time: its log, and its out-of-memory kills in this cgroup."""

import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

KMSG = Path("/dev/kmsg")
CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_RECORD_BYTES = 8192  # the longest record of /dev/kmsg
_RECORD = re.compile(r"\d+,\d+,(?P<us>\d+),[^;]*;(?P<message>.*)")
_SLACK_S = 1.0  # between the clock of the kernel log and CLOCK_MONOTONIC


class KernelEvents:
    """Events of the kernel since this object was created."""

    def __init__(self) -> None:
        """Keep the time and the number of kills so far."""
        self._since_s = time.monotonic()
        self._kills_before = _read_oom_kills()

    def messages(self) -> str | None:
        """Return the lines of the kernel log; None if this user cannot read it."""
        try:
            return "\n".join(messages_since(_kmsg_records(), self._since_s - _SLACK_S))
        except OSError:
            return None

    def oom_kills(self) -> int | None:
        """Return how many processes of this cgroup the kernel killed for lack of memory; None if unknown."""
        now = _read_oom_kills()
        return None if now is None or self._kills_before is None else now - self._kills_before


def messages_since(records: Iterable[str], since_s: float) -> Iterator[str]:
    """Yield the messages of /dev/kmsg's `records` that are not older than `since_s` seconds after the boot.

    A record is `priority,number,microseconds,flags;message`, then lines that begin with a space
    (Documentation/ABI/testing/dev-kmsg).
    """
    for record in records:
        found = _RECORD.match(record)
        if found and int(found["us"]) >= since_s * 1e6:
            yield found["message"]


def _kmsg_records() -> Iterator[str]:
    descriptor = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                yield os.read(descriptor, _RECORD_BYTES).decode(errors="replace")
            except BlockingIOError:
                return
            except BrokenPipeError:  # the next record was overwritten; the position is now at the oldest one
                continue
    finally:
        os.close(descriptor)


def _read_oom_kills() -> int | None:
    try:
        groups = _OWN_CGROUPS.read_text()
    except OSError:
        return None
    for file in event_files(groups):
        try:
            if count := re.search(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE):
                return int(count[1])
        except OSError:
            continue
    return None


def event_files(groups: str) -> list[Path]:
    """Return where the kernel counts the kills, by the content of /proc/self/cgroup; the root is that of a container.

    cgroup v2 has one hierarchy, with number 0; v1 has one per controller.
    """
    files = []
    for line in groups.splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            files += [CGROUPS / "memory" / part / "memory.oom_control" for part in (path.lstrip("/"), "")]
        elif number == "0":
            files += [CGROUPS / part / "memory.events" for part in (path.lstrip("/"), "")]
    return files
