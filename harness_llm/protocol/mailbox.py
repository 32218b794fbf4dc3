"""What one thread hands to another that waits on sockets."""

import contextlib
import os
from collections import deque
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Mailbox(Generic[Thing]):
    """Things in the order in which they were put; `arrivals` is a descriptor that is readable while there are any."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self.arrivals = os.eventfd(0, os.EFD_NONBLOCK)
        self._things: deque[Thing] = deque()

    def put(self, thing: Thing) -> None:
        """Add one; from any thread."""
        self._things.append(thing)
        os.eventfd_write(self.arrivals, 1)

    def take(self) -> list[Thing]:
        """All that there are; by one thread alone."""
        # Unconditionally: another thread may be between its append and its wake-up.
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.arrivals)
        return [self._things.popleft() for _ in range(len(self._things))]

    def close(self) -> None:
        """Nothing is put any more."""
        os.close(self.arrivals)
