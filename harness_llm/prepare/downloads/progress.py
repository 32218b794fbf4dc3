"""Progress of a download whose files are transferred by several threads."""

import threading
import time
from collections.abc import Sequence

from rich.filesize import decimal

from harness_llm.config.assets import Report
from harness_llm.prepare.downloads.remote_file import RemoteFile

_REPORT_EVERY_S = 0.2


class Stopped(Exception):
    """The download ended: another file failed, or the user interrupted it."""


class Progress:
    """Reports from one thread at a time; after `stop`, its methods raise Stopped, which ends a transfer."""

    def __init__(self, report: Report, part: str) -> None:
        """Report steps of the download of `part` to `report`."""
        self._report, self._part = report, part
        self._lock = threading.Lock()
        self._stopped = False
        self._total, self._done, self._reported_at = 0, 0, 0.0

    def expect(self, files: Sequence[RemoteFile]) -> None:
        """Set the bytes of all files to transfer."""
        self._total = sum(file.size for file in files)

    def step(self, text: str, done: float | None = None) -> None:
        """Report a step."""
        with self._lock:
            self._require_running()
            self._report(text, done)

    def advance(self, count: int) -> None:
        """Count received bytes; negative for discarded ones."""
        with self._lock:
            self._require_running()
            self._done += count
            now = time.monotonic()
            if now - self._reported_at >= _REPORT_EVERY_S or self._done == self._total:
                self._reported_at = now
                text = f"{self._part}: {decimal(self._done)} of {decimal(self._total)}"
                self._report(text, self._done / max(self._total, 1))

    def stop(self) -> None:
        """End all transfers."""
        with self._lock:
            self._stopped = True

    def _require_running(self) -> None:
        if self._stopped:
            raise Stopped
