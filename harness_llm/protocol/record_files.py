"""Record files of a run: the columns of each Parquet file, and writing them.

LoadGen's process and the pipeline write them after the run; harness_llm/runs/records.py reads them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

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


class Labels(NamedTuple):
    """A column of text: distinct names, and the index of each row's name; -1 is null."""

    names: Sequence[str]
    numbers: npt.NDArray[np.int64]


Values = npt.NDArray[Any] | Labels
"""Values of a column; a NaN is null."""


def labels(texts: Sequence[str | None]) -> Labels:
    """Return the column of `texts`; None is null."""
    names = list(dict.fromkeys(text for text in texts if text is not None))
    numbers = {name: number for number, name in enumerate(names)}
    return Labels(names, np.array([-1 if text is None else numbers[text] for text in texts], dtype=np.int64))


def write(folder: Path, file: RecordFile, columns: Mapping[str, Values], start_unix_s: float) -> None:
    """Write `file` in the run directory `folder`.

    Raises:
        ValueError: `columns` are not those of `file`.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - 0.2 s

    with write_atomically(folder / file.name) as temporary:
        pq.write_table(_table(file, columns, start_unix_s), temporary, compression="zstd")


def _table(file: RecordFile, columns: Mapping[str, Values], start_unix_s: float) -> "pa.Table":
    import pyarrow as pa  # noqa: PLC0415 - 0.2 s

    schema = pa.schema([(column.name, pa.type_for_alias(column.type)) for column in file.columns])
    if columns.keys() != set(schema.names):
        raise ValueError(f"columns of {file.name}: {sorted(columns)}")
    arrays = [_array(pa, columns[field.name], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema.with_metadata({START: repr(start_unix_s)}))


def _array(pa: Any, values: Values, kind: Any) -> Any:
    """Return an Arrow array, built from buffers because `pyarrow.array` imports pandas, which takes a second."""
    if isinstance(values, Labels):
        numbers = _buffers(pa, values.numbers, values.numbers >= 0, pa.int32())
        return pa.DictionaryArray.from_arrays(numbers, _texts(pa, values.names)).cast(kind)
    return _buffers(pa, values, ~np.isnan(values), kind)


def _buffers(pa: Any, values: npt.NDArray[Any], known: npt.NDArray[np.bool_], kind: Any) -> Any:
    data = np.where(known, values, 0).astype(kind.to_pandas_dtype())
    validity = np.packbits(known, bitorder="little")
    return pa.Array.from_buffers(kind, len(data), [pa.py_buffer(validity), pa.py_buffer(data)])


def _texts(pa: Any, names: Sequence[str]) -> Any:
    data = [name.encode() for name in names]
    ends = np.cumsum([0, *map(len, data)], dtype=np.int32)
    return pa.Array.from_buffers(pa.utf8(), len(data), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(data))])
