"""Read the times of the queries of a run."""

from pathlib import Path

import numpy as np

from harness_llm.analysis.blocks import QueryTimes
from harness_llm.protocol.record_files import QUERIES
from harness_llm.runs.records import read_record

_COLUMNS = ("issue_s", "send_s", "first_token_s", "completion_s", "output_tokens")


def read_query_times(run: Path) -> QueryTimes | None:
    """The completed queries of the run directory `run`; None without their record.

    Raises:
        ConfigError: the file is damaged.
    """
    if not (run / QUERIES.name).is_file():
        return None
    table = read_record(run, QUERIES)
    columns = {name: table[name].cast("float64").to_numpy() for name in _COLUMNS}
    completed = ~np.isnan(columns["completion_s"])
    return QueryTimes(**{name: values[completed] for name, values in columns.items()})
