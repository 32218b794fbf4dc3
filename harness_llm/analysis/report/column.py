"""One column of the report: the runs of one scenario that belong together, and everything read from them."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness_llm.analysis.report.recorded_run import RecordedRun, read_recorded_run
from harness_llm.analysis.run_row import RunRow, run_row
from harness_llm.errors import ConfigError
from harness_llm.loadgen.logs import DETAIL, DetailLog, parse_detail
from harness_llm.runs.record import Run, State

PERFORMANCE, ACCURACY = "performance", "accuracy"


@dataclass(frozen=True)
class Margin:
    """A latency and its limit, in ms."""

    name: str
    value: float
    limit: float

    @property
    def share(self) -> float:
        """1 - value / limit; negative above the limit."""
        return 1 - self.value / self.limit


@dataclass(frozen=True)
class Column:
    """The runs of one result.

    Attributes:
        name: distinguishes the columns of a scenario; it has no influence on files.
        runs: by test.
    """

    name: str
    runs: Mapping[str, Run]

    @property
    def any_run(self) -> Run:
        """The performance run, else another one."""
        return self.runs.get(PERFORMANCE) or next(iter(self.runs.values()))

    @property
    def benchmark(self) -> str:
        return self.any_run.run_key.benchmark

    @property
    def scenario(self) -> str:
        return self.any_run.run_key.scenario

    @property
    def state(self) -> State:
        """The state of the performance run, else of another one."""
        return self.any_run.state

    @functools.cached_property
    def rows(self) -> dict[str, RunRow]:
        """The row of each run by test."""
        return {test: run_row(run) for test, run in self.runs.items()}

    @property
    def row(self) -> RunRow:
        """The row of `any_run`."""
        return self.rows[self.any_run.run_key.test]

    @functools.cached_property
    def detail(self) -> DetailLog | None:
        """LoadGen's log of the performance run; None if it cannot be read."""
        run = self.runs.get(PERFORMANCE)
        try:
            return parse_detail(run.path / DETAIL) if run else None
        except ConfigError:
            return None

    @functools.cached_property
    def recorded(self) -> RecordedRun:
        """The records of the performance run."""
        run = self.runs.get(PERFORMANCE)
        return read_recorded_run(run.path) if run else RecordedRun(missing=("there is no performance run",))

    @property
    def margins(self) -> list[Margin]:
        """p99 TTFT and TPOT with their limits; empty in a scenario without limits."""
        row = self.row
        pairs = (
            ("p99 TTFT", row.p99_ttft_ms, row.ttft_limit_ms),
            ("p99 TPOT", row.p99_tpot_ms, row.tpot_limit_ms),
        )
        return [Margin(name, value, limit) for name, value, limit in pairs if value is not None and limit]

    @property
    def path(self) -> Path:
        """Directory of `any_run`."""
        return self.any_run.path


def by_scenario(columns: Sequence[Column]) -> dict[tuple[str, str], list[Column]]:
    """The columns by benchmark and scenario."""
    found: dict[tuple[str, str], list[Column]] = {}
    for column in columns:
        found.setdefault((column.benchmark, column.scenario), []).append(column)
    return found
