"""A scenario of the report: its columns side by side, with charts, figures and evidence."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness_llm.analysis.report.accuracy_evidence import Evidence, read_evidence
from harness_llm.analysis.report.advice import Step, next_steps, sentence
from harness_llm.analysis.report.chart_groups import ChartGroup, chart_groups
from harness_llm.analysis.report.column import PERFORMANCE, Column
from harness_llm.analysis.report.diagnosed_runs import DiagnosedRun, diagnosed_runs
from harness_llm.analysis.report.facts_table import Row, Table, environment, figures, latencies
from harness_llm.paths import Workspace


@dataclass(frozen=True)
class Judged:
    """A column with its summary."""

    column: Column
    text: str
    diagnosed: Sequence[DiagnosedRun]
    steps: Sequence[Step]
    evidence: Evidence


@dataclass(frozen=True)
class ScenarioSection:
    """One scenario of one benchmark.

    Attributes:
        differing, equal: configuration and environment.
    """

    benchmark: str
    scenario: str
    judged: Sequence[Judged]
    tables: Sequence[Table]
    groups: Sequence[ChartGroup]
    differing: Sequence[Row]
    equal: Sequence[Row]

    @property
    def heads(self) -> list[str]:
        """Heads of the columns of tables."""
        return [one.column.name or "value" for one in self.judged]

    @property
    def title(self) -> str:
        return f"{self.benchmark}, {self.scenario}"


def scenario_section(columns: Sequence[Column], workspace: Workspace) -> ScenarioSection:
    """The section of `columns`, which have the same benchmark and scenario."""
    differing, equal = environment(columns)
    return ScenarioSection(
        columns[0].benchmark,
        columns[0].scenario,
        [_judged(column, workspace) for column in columns],
        [figures(columns), latencies(columns)],
        list(chart_groups([column for column in columns if PERFORMANCE in column.runs])),
        differing,
        equal,
    )


def _judged(column: Column, workspace: Workspace) -> Judged:
    diagnosed = list(diagnosed_runs(column))
    steps = list(next_steps(column, [finding for run in diagnosed for finding in run.roots]))
    return Judged(column, sentence(column), diagnosed, steps, read_evidence(column, workspace))
