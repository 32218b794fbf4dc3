"""Phases of a starting engine, read from its log: start_phases.yaml has the lines."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from harness_llm.fileio import read_yaml

INITIALIZING, WARM_UP, READY = "initializing", "warm-up", "ready"

_FILE = Path(__file__).with_name("start_phases.yaml")
_PERCENT = re.compile(r"(\d{1,3})%")
_LINE_END = re.compile(rb"[\r\n]")  # tqdm ends its lines with a carriage return


class Phase(NamedTuple):
    """A phase of a start; `done` is its progress, 0 to 1, None where unknown."""

    name: str
    done: float | None = None

    def __str__(self) -> str:
        return self.name + (f" {self.done:.0%}" if self.done is not None else "")


@cache
def _patterns() -> Sequence[tuple[str, re.Pattern[str]]]:
    phases = read_yaml(_FILE)
    return [(phase["phase"], re.compile("|".join(f"(?:{line})" for line in phase["lines"]))) for phase in phases]


def phase_names() -> list[str]:
    """All phases of a start, in order."""
    return [INITIALIZING, *(name for name, _ in _patterns()), WARM_UP, READY]


def phase_of(line: str) -> Phase | None:
    """Return the phase that begins or continues with a line of a log; None if the line has no effect."""
    for name, pattern in _patterns():
        if found := pattern.search(line):
            percent = _PERCENT.search(line, found.start())
            return Phase(name, min(int(percent[1]), 100) / 100 if percent else None)
    return None


@dataclass
class LogTail:
    """Reads the lines that are appended to a file, which may not exist yet or be replaced by a shorter one."""

    path: Path
    _offset: int = 0
    _unread: bytes = b""

    def skip(self) -> None:
        """Ignore what the file contains now."""
        self._offset, self._unread = self.path.stat().st_size if self.path.is_file() else 0, b""

    def lines(self) -> list[str]:
        """Return the lines since the last call, without one that has no end yet."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < self._offset:
                    self._offset, self._unread = 0, b""
                file.seek(self._offset)
                read = file.read()
        except OSError:
            return []
        self._offset += len(read)
        *lines, self._unread = _LINE_END.split(self._unread + read)
        return [line.decode(errors="replace") for line in lines]
