"""Transfer several files at the same time."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from harness_llm.prepare.downloads.remote_file import RemoteFile

TRANSFERS = 8
"""Transfers at the same time, as in huggingface_hub: one connection seldom uses all of a node's network."""
_END_S = 2


def transfer_all(
    files: Sequence[RemoteFile],
    transfer: Callable[[RemoteFile], None],
    completed: Callable[[RemoteFile], None],
    stop: Callable[[], None],
) -> None:
    """Call `transfer` for each of `files` in several threads, and `completed` in this thread after each.

    Args:
        stop: called at the end, also after an exception; it lets running transfers raise.

    Raises:
        Exception: the first of a transfer. The other transfers are stopped.
    """
    waiting = deque(files)
    ended: SimpleQueue[tuple[RemoteFile, Exception | None]] = SimpleQueue()
    # Daemons, because a transfer whose server sends no data does not notice `stop` before its timeout.
    threads = [
        threading.Thread(target=_transfer_each, args=(waiting, transfer, ended), name=f"transfer-{number}", daemon=True)
        for number in range(min(TRANSFERS, len(files)))
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in files:
            file, error = ended.get()
            if error:
                raise error
            completed(file)
    finally:
        waiting.clear()
        stop()
        _join(threads)


def _transfer_each(
    waiting: deque[RemoteFile],
    transfer: Callable[[RemoteFile], None],
    ended: "SimpleQueue[tuple[RemoteFile, Exception | None]]",
) -> None:
    while True:
        try:
            file = waiting.popleft()
        except IndexError:
            return
        try:
            transfer(file)
        except Exception as error:  # noqa: BLE001 - raised in the main thread
            ended.put((file, error))
            return
        ended.put((file, None))


def _join(threads: Sequence[threading.Thread]) -> None:
    deadline = time.monotonic() + _END_S
    for thread in filter(threading.Thread.is_alive, threads):
        thread.join(max(deadline - time.monotonic(), 0))
