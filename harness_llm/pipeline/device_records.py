"""Records of this node's devices during a run: sampled in the pipeline's process, written when the run ends."""

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from harness_llm.hardware.telemetry.reading import Reading
from harness_llm.hardware.telemetry.sampler import Sample, Sampler
from harness_llm.protocol import record_files


class DeviceRecords:
    """Samples while `recording`; time 0 is that of LoadGen's process, whose clock is that of this process."""

    def __init__(self) -> None:
        self._start: Mapping[str, float] | None = None
        self._sampler: Sampler | None = None

    def latest(self) -> list[Reading]:
        """Return the last reading of each device; empty if it is not recording."""
        return self._sampler.latest() if self._sampler else []

    def progress(self, body: Mapping[str, Any]) -> None:
        """Take a status message of LoadGen's process; keep its time 0."""
        if body["event"] == "started":
            self._start = body["start"]

    @contextmanager
    def recording(self, folder: Path) -> Iterator[None]:
        """Sample during the block, then write the file in `folder` if LoadGen has started."""
        self._sampler = sampler = Sampler()
        sampler.start()
        try:
            yield
        finally:
            samples = sampler.stop()
            if self._start:
                _write(folder, samples, self._start)


def _write(folder: Path, samples: Sequence[Sample], start: Mapping[str, float]) -> None:
    times, readings = [at - start["clock_s"] for at, _ in samples], [asdict(reading) for _, reading in samples]
    columns = {"time_s": np.array(times, dtype=float)} | {
        column.name: _values([reading[column.name] for reading in readings], column)
        for column in record_files.DEVICES.columns
        if column.name != "time_s"
    }
    try:
        record_files.write(folder, record_files.DEVICES, columns, start["unix_s"])
    except OSError:  # the run is complete without them
        traceback.print_exc()


def _values(values: list[Any], column: record_files.Column) -> record_files.Values:
    if column.type == "string":
        return record_files.labels(values)
    return np.array([np.nan if value is None else value for value in values], dtype=float)
