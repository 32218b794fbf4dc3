"""Comparison of the runs in two folders: metrics and differences. `harness-llm compare`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from harness_llm.errors import ConfigError
from harness_llm.loadgen.logs import DETAIL, parse_detail
from harness_llm.runs.record import LOCK, RECORD, Run, load_run
from harness_llm.runs.selection import differences

PERFORMANCE = "performance"
PERCENTILES = (50, 90, 99)

Runs = Mapping[str, Mapping[str, Run]]
"""By scenario and test."""


@dataclass(frozen=True)
class Pair:
    """A value in A and in B; None if it is missing."""

    a: Any
    b: Any


@dataclass(frozen=True)
class Figure(Pair):
    """One metric; its name has the unit."""

    a: float | None
    b: float | None

    @property
    def ratio(self) -> float | None:
        """B / A."""
        return self.b / self.a if self.a and self.b is not None else None


@dataclass(frozen=True)
class Comparison:
    """One scenario.

    Attributes:
        states: by test.
        figures: metrics by name: rates and latencies of the performance run, scores of the accuracy run.
        differences: `fact: A vs B`, for fingerprint, settings and data.
    """

    states: Mapping[str, Pair]
    figures: Mapping[str, Figure]
    differences: list[str]


def read_runs(folder: Path) -> Runs:
    """The runs below `folder`, or all runs of its scenario if it is a run.

    Raises:
        ConfigError: there is no run, a run has no record, or there are several benchmarks or several runs of a test.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        raise ConfigError("there is no such folder", where=str(folder), hint="runs are below build/logs")
    above = folder.parent if (folder / LOCK).is_file() else folder
    runs = [load_run(lock.parent) for lock in sorted(above.rglob(LOCK))]
    if not runs:
        raise ConfigError(
            "no run found",
            where=str(folder),
            expected="a run directory, or a folder with run directories",
            hint="harness-llm run prints the folders of its runs, below build/logs",
        )
    found: dict[str, dict[str, Run]] = {}
    for run in runs:
        _check(run, runs[0], found)
        found.setdefault(run.run_key.scenario, {})[run.run_key.test] = run
    return found


def _check(run: Run, first: Run, found: Runs) -> None:
    if run.record is None:
        raise ConfigError("a run has no record", where=str(run.path / RECORD), found=run.fault or str(run.state))
    if run.run_key.benchmark != first.run_key.benchmark:
        names = f"{first.run_key.benchmark} and {run.run_key.benchmark}"
        raise ConfigError("the folder has runs of several benchmarks", where=str(run.path), found=names)
    if other := found.get(run.run_key.scenario, {}).get(run.run_key.test):
        raise ConfigError(
            f"the folder has several runs of {run.run_key}",
            found=f"{other.path}\n         {run.path}",
            hint="select one of them",
        )


def compare(a: Runs, b: Runs) -> dict[str, Comparison]:
    """Compare the scenarios that both have.

    Raises:
        ConfigError: the benchmarks differ, or there is no common scenario.
    """
    benchmarks = [next(_all(runs)).run_key.benchmark for runs in (a, b)]
    if len(set(benchmarks)) > 1:
        raise ConfigError("the runs are of different benchmarks", found=" and ".join(benchmarks))
    common = [scenario for scenario in a if scenario in b]
    if not common:
        raise ConfigError("the runs have no scenario in common", found=f"{', '.join(a)} and {', '.join(b)}")
    return {scenario: _compare(a[scenario], b[scenario]) for scenario in common}


def _all(runs: Runs) -> Iterator[Run]:
    return (run for tests in runs.values() for run in tests.values())


def _compare(a: Mapping[str, Run], b: Mapping[str, Run]) -> Comparison:
    tests = list(dict.fromkeys((*a, *b)))
    figures = [_figures(runs) for runs in (a, b)]
    names = dict.fromkeys(name for side in figures for name in side)
    found = [
        line for test in tests if test in a and test in b for line in differences(_facts(a[test]), _facts(b[test]))
    ]
    return Comparison(
        states={test: Pair(*(str(runs[test].state) if test in runs else None for runs in (a, b))) for test in tests},
        figures={name: Figure(*(side.get(name) for side in figures)) for name in names},
        differences=list(dict.fromkeys(found)),
    )


def _figures(runs: Mapping[str, Run]) -> dict[str, float]:
    """The metrics of the records, and further percentiles of the performance run."""
    found: dict[str, float] = {}
    for test, run in sorted(runs.items(), key=lambda item: item[0] != PERFORMANCE):
        own = run.record.metrics if run.record else {}
        found |= own
        found |= {f"prediction_{name}": value for name, value in (run.record.prediction if run.record else {}).items()}
        if test == PERFORMANCE and own:
            found |= _latencies(run.path / DETAIL)
    return found


def _latencies(log: Path) -> dict[str, float]:
    detail = parse_detail(log)
    answers: Callable[[float], float | None] = detail.latency_percentiles_ms.get
    found = {
        f"p{percentile}_{name}_ms": value(percentile)
        for name, value in (("ttft", detail.ttft_ms), ("tpot", detail.tpot_ms), ("latency", answers))
        for percentile in PERCENTILES
    }
    return {name: value for name, value in found.items() if value is not None}


def _facts(run: Run) -> dict[str, Any]:
    """The facts of a run that can differ from another run."""
    if run.record is None:
        return {}
    record = run.record
    run_facts = record.run_facts | {"user_conf": " ".join(str(record.run_facts.get("user_conf", "")).split())}
    named = {name: getattr(record, name) for name in ("system", "round", "division", "profile")}
    return named | record.fingerprint | run_facts | record.host


def as_json(comparisons: Mapping[str, Comparison]) -> dict[str, Any]:
    """The comparison as JSON; `ratio` is B / A."""
    return {
        scenario: {
            "states": {test: asdict(pair) for test, pair in found.states.items()},
            "figures": {name: asdict(f) | {"ratio": f.ratio} for name, f in found.figures.items()},
            "differences": found.differences,
        }
        for scenario, found in comparisons.items()
    }


def show(comparisons: Mapping[str, Comparison], console: Console) -> None:
    """Print the comparison as tables."""
    for scenario, found in comparisons.items():
        table = Table(scenario, "A", "B", "B / A")
        for column in table.columns[1:]:
            column.justify = "right"
        for test, state in found.states.items():
            table.add_row(test, state.a or "-", state.b or "-")
        table.add_section()
        for name, figure in found.figures.items():
            table.add_row(name, *(_written(value) for value in (figure.a, figure.b, figure.ratio)))
        console.print(table)
        for line in found.differences:
            console.print(f"differs: {line}", soft_wrap=True, highlight=False, markup=False)


def _written(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"
