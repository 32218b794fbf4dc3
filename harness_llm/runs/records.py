"""Reader of a run's records: Parquet files beside LoadGen's logs (docs/records.md)."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness_llm.errors import ConfigError
from harness_llm.protocol.record_files import DEVICES, QUERIES, REPLICAS, START, RecordFile

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Records:
    """Records of one run as Arrow tables; times are in seconds since `start_unix_s`."""

    start_unix_s: float
    queries: "pa.Table"
    replicas: "pa.Table"
    devices: "pa.Table"


def read_records(run: Path) -> Records:
    """Read the records in the run directory `run`.

    Raises:
        ConfigError: a file is missing or not readable.
    """
    queries, replicas, devices = (read_record(run, file) for file in (QUERIES, REPLICAS, DEVICES))
    return Records(float(queries.schema.metadata[START.encode()]), queries, replicas, devices)


def read_record(run: Path, file: RecordFile) -> "pa.Table":
    """Read one record of the run directory `run`; raises as `read_records`."""
    import pyarrow as pa  # noqa: PLC0415 - 0.2 s
    import pyarrow.parquet as pq  # noqa: PLC0415 - 0.2 s

    try:
        return pq.read_table(run / file.name)
    except (OSError, pa.ArrowInvalid) as error:
        raise ConfigError(
            "unreadable record of a run",
            where=str(run / file.name),
            expected="the file that a run writes when it ends",
            found=str(error),
            hint="a run that failed before LoadGen started has no records; repeat the run",
        ) from error
