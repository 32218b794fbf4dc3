"""The records of a run as arrays: queries, replicas and devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness_llm.analysis.report.chart import Floats
from harness_llm.errors import ConfigError
from harness_llm.protocol.record_files import DEVICES, FILES, QUERIES, REPLICAS, RecordFile
from harness_llm.runs.records import read_record

Columns = Mapping[str, Floats]


@dataclass(frozen=True)
class RecordedRun:
    """Records of a run; a record that is missing is empty.

    Attributes:
        queries: completed queries.
        queries_by_replica: indices of the queries that each replica completed.
        replicas, devices: by name.
        throttled: seconds by device and reason.
        missing: one sentence per missing record.
    """

    queries: Columns = field(default_factory=dict)
    queries_by_replica: Mapping[str, NDArray[np.intp]] = field(default_factory=dict)
    replicas: Mapping[str, Columns] = field(default_factory=dict)
    devices: Mapping[str, Columns] = field(default_factory=dict)
    throttled: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    missing: Sequence[str] = ()

    @property
    def end(self) -> float:
        """Seconds from LoadGen's start to the last completion; of a run without one, to the last row, at least 0."""
        if self.queries:
            return float(self.queries["completion_s"].max())
        times = [own["time_s"].max() for own in (*self.replicas.values(), *self.devices.values())]
        return float(max([0.0, *times]))

    @property
    def ttft_ms(self) -> Floats:
        """Time to first token of each query; empty in a scenario without first tokens."""
        return np.asarray(self._between("issue_s", "first_token_s") * 1000)

    @property
    def tpot_ms(self) -> Floats:
        """Time per output token after the first of each query; likewise."""
        if not len(self.ttft_ms):
            return np.array([])
        tokens = np.maximum(self.queries["output_tokens"] - 1, 1)
        return np.asarray(self._between("first_token_s", "completion_s") * 1000 / tokens)

    @property
    def latency_ms(self) -> Floats:
        """Time from issue to the whole answer of each query."""
        return np.asarray(self._between("issue_s", "completion_s") * 1000)

    def _between(self, start: str, end: str) -> Floats:
        found = self.queries[end] - self.queries[start] if self.queries else np.array([])
        return np.asarray(np.array([]) if np.isnan(found).all() else found, dtype=np.float64)


def read_recorded_run(run: Path) -> RecordedRun:
    """The records in the run directory `run`."""
    tables, missing = {}, []
    for file in FILES:
        if not (run / file.name).is_file():
            missing.append(f"{file.name} is missing")
            continue
        try:
            tables[file.name] = read_record(run, file)
        except ConfigError as error:
            missing.append(error.line)
    return RecordedRun(
        queries=_completed(tables.get(QUERIES.name)),
        queries_by_replica=_owners(tables.get(QUERIES.name)),
        replicas=_by_name(tables.get(REPLICAS.name), REPLICAS, "replica"),
        devices=_by_name(tables.get(DEVICES.name), DEVICES, "device"),
        throttled=_throttled(tables.get(DEVICES.name)),
        missing=missing,
    )


def _arrays(table: Any, file: RecordFile) -> dict[str, Floats]:
    names = [column.name for column in file.columns if column.type != "string" and column.name in table.column_names]
    return {name: table[name].cast("float64").to_numpy() for name in names}


def _completed(table: Any) -> Columns:
    if table is None:
        return {}
    columns = _arrays(table, QUERIES)
    done = ~np.isnan(columns["completion_s"])
    return {name: values[done] for name, values in columns.items()} if done.any() else {}


def _owners(table: Any) -> dict[str, NDArray[np.intp]]:
    if table is None:
        return {}
    done = ~np.isnan(table["completion_s"].cast("float64").to_numpy())
    owners = np.array(table["replica"].to_pylist(), dtype=object)[done]
    names = sorted(set(owners.tolist()) - {None}, key=natural_order)
    return {name: np.flatnonzero(owners == name) for name in names}


def _by_name(table: Any, file: RecordFile, name: str) -> dict[str, Columns]:
    if table is None:
        return {}
    columns, owners = _arrays(table, file), np.array(table[name].to_pylist(), dtype=object)
    names = sorted(set(owners.tolist()) - {None}, key=natural_order)
    return {own: {key: values[owners == own] for key, values in columns.items()} for own in names}


def _throttled(table: Any) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    if table is None:
        return found
    for device, reasons in zip(table["device"].to_pylist(), table["throttle"].to_pylist(), strict=True):
        for reason in (reasons or "").split(","):
            if reason.strip():
                own = found.setdefault(device, {})
                own[reason.strip()] = own.get(reason.strip(), 0) + 1
    return found


def natural_order(name: str) -> tuple[str, int]:
    """Sort key with numbers at the end by value: gpu-2 before gpu-10."""
    head = name.rstrip("0123456789")
    return head, int(name[len(head) :] or 0)
