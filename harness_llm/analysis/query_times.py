"""Read the times of the queries of a run from its queries.parquet."""

from pathlib import Path

import numpy as np

from harness_llm.analysis.blocks import QueryTimes
from harness_llm.errors import ConfigError

QUERIES = "queries.parquet"
_COLUMNS = ("issue_s", "send_s", "first_token_s", "completion_s", "output_tokens")


def read_query_times(run: Path) -> QueryTimes | None:
    """The completed queries of the run directory `run`; None without the file.

    Raises:
        ConfigError: the file is damaged.
    """
    import pyarrow as pa  # noqa: PLC0415 - 0.2 s
    import pyarrow.parquet as pq  # noqa: PLC0415 - 0.2 s

    file = run / QUERIES
    if not file.is_file():
        return None
    try:
        table = pq.read_table(file, columns=list(_COLUMNS))
        columns = {name: table[name].cast("float64").to_numpy() for name in _COLUMNS}
    except (OSError, pa.ArrowInvalid, KeyError) as error:
        raise ConfigError("unreadable record of the queries", where=str(file), found=str(error)) from error
    completed = ~np.isnan(columns["completion_s"])
    return QueryTimes(**{name: values[completed] for name, values in columns.items()})
