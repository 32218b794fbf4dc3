"""The rows of `harness-llm runs` as a table for a terminal, as CSV and as JSON."""

import csv
import datetime as dt
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness_llm.analysis.run_row import RunRow
from harness_llm.analysis.run_selection import NAMES
from harness_llm.evaluate.run_result import VERDICT

_PADDING = 1
_GAP = _PADDING + 1  # the box has a space between columns
_NARROWEST_REASON = 20
_WHOLE = 1000  # larger numbers have no decimals


@dataclass(frozen=True)
class _Column:
    """A column.

    Attributes:
        priority: columns with the lowest numbers are shown first if the terminal is too narrow for all.
        common: shown above the table instead, if all runs with a record have the same value.
    """

    title: str
    cell: Callable[[RunRow], str]
    priority: int
    common: bool = False
    right: bool = False


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= _WHOLE else f"{value:.4g}"


def _of_limit(value: float | None, limit: float | None) -> str:
    return _number(value) + (f" / {_number(limit)}" if value is not None and limit else "")


def _score(row: RunRow) -> str:
    return f"{row.score_metric} {row.score:.4f}" if row.score is not None else ""


def _reason(row: RunRow) -> str:
    """The reasons; the state says that a run is INVALID."""
    return row.reason.replace(f"{VERDICT}: ", "")


_RUN, _REASON = "run", "reason"
_COLUMNS = (
    _Column(_RUN, lambda row: row.name, 1),
    _Column("started", lambda row: f"{dt.datetime.fromisoformat(row.started):%m-%d %H:%M}", 9),
    _Column("state", lambda row: row.state, 0),
    _Column("tokens/s", lambda row: _number(row.tokens_per_second), 2, right=True),
    _Column("samples/s", lambda row: _number(row.samples_per_second), 9, right=True),
    _Column("p99 TTFT ms", lambda row: _of_limit(row.p99_ttft_ms, row.ttft_limit_ms), 4, right=True),
    _Column("p99 TPOT ms", lambda row: _of_limit(row.p99_tpot_ms, row.tpot_limit_ms), 4, right=True),
    _Column("score", _score, 7, right=True),
    _Column("target", lambda row: _number(row.target), 8, right=True),
    _Column("fingerprint", lambda row: row.fingerprint, 8, common=True),
    _Column("profile", lambda row: row.profile, 10, common=True),
    _Column("round", lambda row: row.round, 11, common=True),
    _Column("division", lambda row: row.division, 11, common=True),
    _Column("engine", lambda row: row.engine, 10, common=True),
    _Column("loadgen", lambda row: row.loadgen, 11, common=True),
    _Column("harness", lambda row: row.harness, 11, common=True),
    _Column(_REASON, _reason, 3),
)


def show(rows: Sequence[RunRow], console: Console) -> None:
    """Print as many columns as fit; all of them, unshortened, if the output is not a terminal."""
    values = {column: {column.cell(row) for row in rows} - {""} for column in _COLUMNS}
    common = [column for column in _COLUMNS if column.common and len(values[column]) == 1]
    used = [column for column in _COLUMNS if column not in common and values[column]]
    width = console.width
    if console.is_terminal:
        used = _fitting(used, rows, width)
    else:
        width = sum(_width(column, rows) + _GAP for column in used)
    facts = [f"{column.title} {value}" for column in common for value in values[column]]
    console.print("; ".join(facts), soft_wrap=not console.is_terminal, highlight=False, markup=False)
    table = _table(used, rows)
    if not console.is_terminal or used[-1].title == _REASON:
        table.width = width
    console.print(table, width=width, crop=False)


def _table(columns: Sequence[_Column], rows: Sequence[RunRow]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _PADDING, 0, 0))
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=column.title != _RUN,
            overflow="fold" if column.title == _RUN else "ellipsis",
            ratio=1 if column.title == _REASON else None,
        )
    for row in rows:
        table.add_row(*(Text(column.cell(row)) for column in columns))
    return table


def _width(column: _Column, rows: Sequence[RunRow]) -> int:
    return max(cell_len(text) for text in (column.title, *(column.cell(row) for row in rows)))


def _fitting(columns: Sequence[_Column], rows: Sequence[RunRow], width: int) -> list[_Column]:
    """The columns of highest priority that fit into `width`; the run is always one of them."""
    left, chosen = width, []
    for column in sorted(columns, key=lambda column: column.priority):
        needed = _least_width(column, rows, left - _GAP)
        if needed + _GAP <= left:
            left -= needed + _GAP
            chosen.append(column)
    return [column for column in columns if column in chosen]


def _least_width(column: _Column, rows: Sequence[RunRow], left: int) -> int:
    """Reasons are shortened, and runs folded if their names are longer than the terminal is wide."""
    natural = _width(column, rows)
    shortest = {_REASON: _NARROWEST_REASON, _RUN: left}
    return min(natural, shortest.get(column.title, natural))


def as_csv(rows: Sequence[RunRow]) -> str:
    """All fields with a header line; missing values are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, NAMES, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return text.getvalue()


def as_json(rows: Sequence[RunRow]) -> str:
    """A list of objects with all fields; missing values are null."""
    return json.dumps([asdict(row) for row in rows], indent=2) + "\n"
