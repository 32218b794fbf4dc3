"""A queue from threads to one thread that polls sockets."""

import contextlib
import os
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """A first-in, first-out queue.

    `arrivals` is an eventfd, readable while the queue has items, and once more if `take` ran between the two steps of
    `put`.
    """

    def __init__(self) -> None:
        self.arrivals = os.eventfd(0, os.EFD_NONBLOCK)
        self._items: deque[Item] = deque()

    def put(self, item: Item) -> None:
        """Append an item; from any thread."""
        self._items.append(item)
        os.eventfd_write(self.arrivals, 1)

    def take(self) -> list[Item]:
        """Remove and return all items; from one thread only."""
        # Read even if the queue is empty: another thread may be between append and eventfd_write.
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.arrivals)
        return [self._items.popleft() for _ in range(len(self._items))]

    def close(self) -> None:
        """Close the eventfd."""
        os.close(self.arrivals)
