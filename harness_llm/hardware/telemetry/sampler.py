"""Sampler: a thread that reads all devices of this node once per second."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from harness_llm.hardware.telemetry.reading import Reading, Source

INTERVAL_S = 1.0
# A broken driver may never answer.
_STOP_S = 5.0

Sample = tuple[float, Reading]
"""A time of the clock of time.perf_counter, and a reading."""


def _nvidia() -> Source:
    import pynvml  # noqa: PLC0415 - its error is that of a machine without NVIDIA's driver

    from harness_llm.hardware.telemetry.nvidia import Nvidia  # noqa: PLC0415

    try:
        return Nvidia()
    except pynvml.NVMLError as error:
        raise RuntimeError(str(error)) from error


def _amd() -> Source:
    from harness_llm.hardware.telemetry.amd import Amd  # noqa: PLC0415

    return Amd()


def _cpu() -> Source:
    from harness_llm.hardware.telemetry.cpu import Cpu  # noqa: PLC0415

    return Cpu()


def open_sources() -> list[Source]:
    """Return the sources of this node's devices: GPUs with a driver, and its processors."""
    sources = []
    openers: Sequence[Callable[[], Source]] = (_nvidia, _amd, _cpu)
    for opener in openers:
        with contextlib.suppress(ImportError, OSError, RuntimeError):
            sources.append(opener())
    return sources


class Sampler:
    """Reads devices from `start` to `stop`."""

    def __init__(self, sources: Callable[[], Sequence[Source]] = open_sources, interval_s: float = INTERVAL_S) -> None:
        """Create a sampler; its thread opens the sources, as the first access to a driver may take seconds."""
        self._sources, self._interval_s = sources, interval_s
        self._samples: list[Sample] = []
        self._latest: dict[str, Reading] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> list[Sample]:
        """Stop the thread; return the samples in order of time."""
        self._over.set()
        self._thread.join(_STOP_S)
        return list(self._samples)

    def latest(self) -> list[Reading]:
        """Return the last reading of each device; from any thread."""
        return list(self._latest.copy().values())

    def _run(self) -> None:
        sources = self._sources()
        due = time.perf_counter() + self._interval_s
        while not self._over.wait(max(due - time.perf_counter(), 0)):
            for source in sources:
                at = time.perf_counter()
                readings = source.read()
                self._samples += [(at, reading) for reading in readings]
                self._latest |= {reading.device: reading for reading in readings}
            due = max(due + self._interval_s, time.perf_counter())
        for source in sources:
            source.close()
