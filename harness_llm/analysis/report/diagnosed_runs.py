"""Diagnoses of the runs of a column."""

from collections.abc import Iterator
from dataclasses import dataclass

from harness_llm.analysis.diagnosis.causes import CAUSES
from harness_llm.analysis.diagnosis.diagnosis import diagnose
from harness_llm.analysis.diagnosis.finding import Finding
from harness_llm.analysis.diagnosis.run_data import read_run
from harness_llm.analysis.report.column import PERFORMANCE, Column
from harness_llm.errors import ConfigError
from harness_llm.runs.record import Run, State


@dataclass(frozen=True)
class DiagnosedRun:
    """The findings of one run, causes before their consequences; or why there is no diagnosis."""

    test: str
    findings: tuple[Finding, ...]
    fault: str = ""

    @property
    def roots(self) -> list[Finding]:
        """The findings that no other one explains."""
        return [finding for finding in self.findings if not finding.because_of]


def diagnosed_runs(column: Column) -> Iterator[DiagnosedRun]:
    """Diagnose the performance run, and the other runs that are not VALID."""
    for test, run in column.runs.items():
        if run.record and (test == PERFORMANCE or run.state is not State.VALID):
            yield _diagnosed(test, run)


def _diagnosed(test: str, run: Run) -> DiagnosedRun:
    try:
        return DiagnosedRun(test, diagnose(read_run(run.path)).findings)
    except ConfigError as error:
        return DiagnosedRun(test, (), error.line)
    except Exception as error:  # noqa: BLE001 - a run of an older version may lack what a rule needs
        return DiagnosedRun(test, (), repr(error))


def causes_text(finding: Finding) -> str:
    """The causes that explain a finding, in words."""
    return ", ".join(CAUSES[cause].title for cause in finding.because_of)
