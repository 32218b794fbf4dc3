"""Waiting for processes and conditions, with bounds for a loaded machine."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

PATIENCE_S = 300


def is_alive(process: psutil.Process) -> bool:
    """Whether the process runs; one that ends meanwhile has no state."""
    try:
        return process.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.NoSuchProcess:
        return False


def living_children() -> set[psutil.Process]:
    return {child for child in psutil.Process().children() if is_alive(child)}


@contextmanager
def no_child_remains() -> Iterator[None]:
    """Fail if the block leaves a child process; those of other tests are not counted."""
    before = living_children()
    yield
    assert living_children() - before == set()


def ends(pid: int, timeout_s: float = PATIENCE_S) -> bool:
    """Whether the process ends in time."""
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return True
    deadline = time.monotonic() + timeout_s
    while is_alive(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def wait_until(true: Callable[[], object], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"{timeout_s} s have passed without {what}"
        time.sleep(0.1)
