"""Record files of a run: the columns of each Parquet file, and writing them.

LoadGen's process and the pipeline write them after the run; harness_llm/runs/records.py reads them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness_llm.fileio import write_atomically

if TYPE_CHECKING:
    import pyarrow as pa

START = "start_unix_s"
"""Metadata of every file: time 0 of the run, in seconds since 1970."""


@dataclass(frozen=True)
class Column:
    """A column: name, Arrow type, unit and meaning."""

    name: str
    type: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class RecordFile:
    """A Parquet file of a run: its name, what a row is, and its columns."""

    name: str
    row: str
    columns: Sequence[Column]


QUERIES = RecordFile(
    "queries.parquet",
    "a query, in order of issue",
    (
        Column("sample", "int32", "", "index in the data set"),
        Column("replica", "string", "", "the last replica that got the query"),
        Column("issue_s", "float64", "s", "LoadGen called the SUT"),
        Column("send_s", "float64", "s", "the query was sent to a replica for the first time"),
        Column("first_token_s", "float64", "s", "the first token was reported to LoadGen; null in Offline"),
        Column("completion_s", "float64", "s", "the whole answer was reported to LoadGen"),
        Column("prompt_tokens", "int32", "tokens", "length of the prompt"),
        Column("output_tokens", "int32", "tokens", "length of the answer, end-of-sequence token included"),
        Column("requeues", "int16", "", "times the query was sent again because its replica had failed"),
    ),
)

REPLICAS = RecordFile(
    "replicas.parquet",
    "a replica and a second, in order of time",
    (
        Column("time_s", "float64", "s", "the replica published its heartbeat"),
        Column("replica", "string", "", "name; equal after a restart"),
        Column("in_flight", "int32", "", "queries sent to the replica and not answered, in LoadGen's process"),
        Column("running", "int32", "", "queries in the engine's batch"),
        Column("waiting", "int32", "", "queries in the engine's queue"),
        Column("kv_cache_use", "float64", "0 to 1", "share of the KV cache in use"),
        Column("output_tokens", "int64", "tokens", "generated since the replica's previous row"),
        Column("tokens_per_s", "float64", "tokens/s", "`output_tokens` by time since the previous row"),
        Column("steps", "int64", "", "engine steps since the previous row"),
        Column("preemptions", "int64", "", "sequences preempted since the previous row"),
    ),
)

DEVICES = RecordFile(
    "devices.parquet",
    "a device of the node of LoadGen's process and a second, in order of time",
    (
        Column("time_s", "float64", "s", "the device was read"),
        Column("device", "string", "", "`gpu-0` …, in the order of nvidia-smi or amd-smi; `cpu`: all processors"),
        Column("power_w", "float64", "W", "power; of processors by RAPL, which mostly only root may read"),
        Column("clock_mhz", "float64", "MHz", "clock of the SMs, the compute units, or some of the processors"),
        Column("memory_clock_mhz", "float64", "MHz", "clock of the GPU's memory"),
        Column("temperature_c", "float64", "°C", "of the GPU (AMD: hotspot) or the hottest processor"),
        Column("memory_used_mib", "float64", "MiB", "used memory of the device, or of the system"),
        Column("utilisation", "float64", "0 to 1", "share of the time in which the device was busy"),
        Column("throttle", "string", "", "reasons for reduced clocks, separated by commas; empty for none"),
    ),
)

FILES = (QUERIES, REPLICAS, DEVICES)


def table(file: RecordFile, columns: Mapping[str, Any], start_unix_s: float) -> "pa.Table":
    """Return the table of `file`; a NaN is null.

    Raises:
        ValueError: `columns` are not those of `file`.
    """
    import pyarrow as pa  # noqa: PLC0415 - 0.2 s

    schema = pa.schema([(column.name, pa.type_for_alias(column.type)) for column in file.columns])
    if columns.keys() != set(schema.names):
        raise ValueError(f"columns of {file.name}: {sorted(columns)}")
    arrays = [_array(pa, columns[field.name], field.type) for field in schema]
    return pa.table(arrays, schema=schema.with_metadata({START: repr(start_unix_s)}))


def _array(pa: Any, values: Any, kind: Any) -> Any:
    array = pa.array(values, from_pandas=True)
    return array if array.type == kind else array.cast(kind)


def write(folder: Path, file: RecordFile, columns: Mapping[str, Any], start_unix_s: float) -> None:
    """Write `file` in the run directory `folder`."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - 0.2 s

    with write_atomically(folder / file.name) as temporary:
        pq.write_table(table(file, columns, start_unix_s), temporary, compression="zstd")


def nullable(values: Any, known: Any) -> Any:
    """Return `values` as floats, NaN where not `known`."""
    return np.where(known, values, np.nan)
