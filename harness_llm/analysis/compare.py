"""Comparison of two sides, each with one or more runs: figures, intervals and differences. `harness-llm compare`."""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Any

from harness_llm.analysis.blocks import PERCENTILES, spreads
from harness_llm.analysis.interval import FEWEST_RUNS, Estimate, Interval, Spread, between_runs, ratio, within_runs
from harness_llm.analysis.query_times import read_query_times
from harness_llm.analysis.repeats import Runs, facts
from harness_llm.errors import ConfigError
from harness_llm.loadgen.logs import DETAIL, parse_detail
from harness_llm.runs.facts import differences
from harness_llm.runs.record import Run, State

PERFORMANCE = "performance"
_COUNTED = (State.VALID, State.INVALID)


class Basis(StrEnum):
    """What an interval contains."""

    RUNS = "variation between runs"
    BLOCKS = "variation within the runs only"


@dataclass(frozen=True)
class Pair:
    """A value in A and in B; None if it is missing."""

    a: Any
    b: Any


@dataclass(frozen=True)
class Figure(Pair):
    """One metric, the mean of the runs; its name has the unit.

    Attributes:
        interval: of B / A; None if it is unknown.
    """

    a: float | None
    b: float | None
    interval: Interval | None = None
    basis: Basis | None = None

    @property
    def ratio(self) -> float | None:
        """B / A."""
        return self.b / self.a if self.a and self.b is not None else None


@dataclass(frozen=True)
class Comparison:
    """One scenario.

    Attributes:
        states: by test.
        figures: metrics by name: rates and latencies of the performance runs, scores of the accuracy runs.
        differences: `fact: A vs B`, for fingerprint, settings and data.
        counts: number of performance runs.
        unrecorded: whether a side without enough runs has no record of its queries that is long enough.
    """

    states: Mapping[str, Pair]
    figures: Mapping[str, Figure]
    differences: list[str]
    counts: Pair
    unrecorded: Pair


@dataclass(frozen=True)
class _Side:
    """The runs of one scenario.

    Attributes:
        figures: of each run, by name.
        measured: the performance runs that count.
    """

    runs: Mapping[str, Sequence[Run]]
    figures: Mapping[str, Sequence[float]]
    measured: Sequence[Run]

    @functools.cached_property
    def spreads(self) -> list[dict[str, Spread]]:
        """The spreads of the figures within each run that counts; takes seconds for long runs."""
        return [_spreads(run) for run in self.measured]

    def mean(self, name: str) -> float | None:
        return fmean(self.figures[name]) if name in self.figures else None

    def estimate(self, name: str, basis: Basis) -> Estimate | None:
        values = self.figures.get(name, ())
        if basis is Basis.RUNS:
            return between_runs(values)
        known = [own.get(name) for own in self.spreads]
        return within_runs(values, known) if len(values) == len(known) else None


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
    return {scenario: _compare(_side(a[scenario]), _side(b[scenario])) for scenario in common}


def _all(runs: Runs) -> Iterator[Run]:
    return (run for tests in runs.values() for repeats in tests.values() for run in repeats)


def _compare(a: _Side, b: _Side) -> Comparison:
    tests = list(dict.fromkeys((*a.runs, *b.runs)))
    names = dict.fromkeys(name for side in (a, b) for name in side.figures)
    both = [test for test in tests if test in a.runs and test in b.runs]
    found = [line for test in both for line in differences(facts(a.runs[test][-1]), facts(b.runs[test][-1]))]
    return Comparison(
        states={test: Pair(*(_states(side.runs.get(test, ())) for side in (a, b))) for test in tests},
        figures={name: _figure(name, a, b) for name in names},
        differences=list(dict.fromkeys(found)),
        counts=Pair(len(a.measured), len(b.measured)),
        unrecorded=Pair(*(not _enough(a, b) and not all(side.spreads) for side in (a, b))),
    )


def _states(runs: Sequence[Run]) -> str | None:
    """The state of the run; of several, their numbers."""
    if len(runs) == 1:
        return str(runs[0].state)
    return ", ".join(f"{count} {state}" for state, count in Counter(run.state for run in runs).items()) or None


def _figure(name: str, a: _Side, b: _Side) -> Figure:
    mean_a, mean_b = a.mean(name), b.mean(name)
    for basis in (Basis.RUNS,) if _enough(a, b) else Basis:
        estimate_a, estimate_b = a.estimate(name, basis), b.estimate(name, basis)
        if estimate_a and estimate_b:
            return Figure(mean_a, mean_b, ratio(estimate_a, estimate_b), basis)
    return Figure(mean_a, mean_b)


def _enough(a: _Side, b: _Side) -> bool:
    return min(len(a.measured), len(b.measured)) >= FEWEST_RUNS


def _side(runs: Mapping[str, Sequence[Run]]) -> _Side:
    """Of DEGRADED and FAILED runs, only the newest gives figures, and only if there are no others."""
    figures: dict[str, list[float]] = {}
    measured: list[Run] = []
    for test, repeats in sorted(runs.items(), key=lambda item: item[0] != PERFORMANCE):
        counted = [run for run in repeats if run.state in _COUNTED]
        for run in counted or repeats[-1:]:
            for name, value in _figures(run).items():
                figures.setdefault(name, []).append(value)
        if test == PERFORMANCE:
            measured = [run for run in counted if run.record and run.record.metrics]
    return _Side(runs, figures, measured)


def _figures(run: Run) -> dict[str, float]:
    """The metrics of the record, and further percentiles of a performance run."""
    if not run.record:
        return {}
    found = run.record.metrics | {f"prediction_{name}": value for name, value in run.record.prediction.items()}
    with_log = run.run_key.test == PERFORMANCE and run.record.metrics
    return found | (_latencies(run.path / DETAIL) if with_log else {})


def _spreads(run: Run) -> dict[str, Spread]:
    queries = read_query_times(run.path)
    return spreads(queries) if queries else {}


def _latencies(log: Path) -> dict[str, float]:
    detail = parse_detail(log)
    answers: Callable[[float], float | None] = detail.latency_percentiles_ms.get
    found = {
        f"p{percentile}_{name}_ms": value(percentile)
        for name, value in (("ttft", detail.ttft_ms), ("tpot", detail.tpot_ms), ("latency", answers))
        for percentile in PERCENTILES
    }
    return {name: value for name, value in found.items() if value is not None}
