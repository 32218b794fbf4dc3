"""Writer of a child's status channel: whole lines in order, and without waiting where a line may be discarded."""

import contextlib
import os
import select
import threading


class StatusWriter:
    """Writes lines to a pipe; from any thread. A line of which a part was written is completed before the next one."""

    def __init__(self, descriptor: int) -> None:
        """Write to the pipe `descriptor`, which becomes non-blocking."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._writable = select.poll()
        self._writable.register(descriptor, select.POLLOUT)
        self._lock = threading.Lock()
        self._unsent = b""

    def send(self, line: bytes) -> None:
        """Write `line`; wait while the pipe is full.

        Raises:
            BrokenPipeError: the reader has exited.
        """
        with self._lock:
            self._unsent += line
            while not self._flush():
                self._writable.poll()

    def offer(self, line: bytes) -> None:
        """Write `line` without waiting; discard it while the pipe is full or another thread writes.

        Raises:
            BrokenPipeError: the reader has exited.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._flush():
                self._unsent = line
                self._flush()
        finally:
            self._lock.release()

    def _flush(self) -> bool:
        """Write unsent bytes until the pipe is full; return whether all are written."""
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[os.write(self._descriptor, self._unsent) :]
        return not self._unsent
