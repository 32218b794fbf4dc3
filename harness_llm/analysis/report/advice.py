"""The summary of a column in words: what was measured, the verdict, how near the limits are, and what to do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness_llm.analysis.diagnosis.finding import Finding
from harness_llm.analysis.recorded_command import recorded_command
from harness_llm.analysis.report.column import Column
from harness_llm.analysis.report.wording import NEAR, margin_text, number, percent, seconds
from harness_llm.config.commands import command_line
from harness_llm.config.submission_names import VALID as SUBMITTABLE
from harness_llm.runs.record import State

_FAR = 0.1
"""Margin to the nearest limit from which a higher target may be VALID."""


def sentence(column: Column) -> str:
    """One or two sentences on the performance run."""
    row, run = column.row, column.any_run
    text = f"{column.benchmark} {column.scenario} on {run.system}: {run.state}"
    if row.tokens_per_second is not None:
        text += f" with {number(row.tokens_per_second)} tokens/s"
    if row.target is not None and column.margins:
        text += f" at a target of {number(row.target)} queries/s"
    if run.record and (duration := run.record.metrics.get("duration_s")):
        text += f", in {seconds(duration)}"
    parts = [
        f"{one.name} is {number(one.value)} ms, {margin_text(one.share)} of {number(one.limit)} ms"
        for one in column.margins
    ]
    return f"{text}. {' and '.join(parts)}{'.' if parts else ''}".strip()


@dataclass(frozen=True)
class Step:
    """Something to do, and the command that does it."""

    text: str
    command: str = ""


def next_steps(column: Column, findings: Sequence[Finding]) -> Iterator[Step]:
    """What to do, most important first; `findings` are the causes of the diagnosis."""
    run = column.any_run
    for test, other in column.runs.items():
        if other.state is not State.VALID:
            yield Step(f"{test} is {other.state}: {'; '.join(other.reasons) or 'the run has no record'}.")
    for finding in findings:
        settings = "; ".join(map(str, finding.settings))
        yield Step(f"{finding.title}: {finding.summary}; {finding.action}", settings)
    if run.state is State.MEASURED:
        yield Step("Judge its log again with the same submit; remove the cause of the failed scoring first.")
    elif run.state in (State.FAILED, State.DEGRADED, State.INTERRUPTED):
        yield Step("Repeat the run; for a bug report:", command_line("bundle", str(run.path)))
    elif run.state is State.VALID:
        yield from _of_valid(column)


def _of_valid(column: Column) -> Iterator[Step]:
    record = column.any_run.record
    if record and not record.run_facts.get("profile", {}).get("packaged", True):
        yield Step(f"Runs of the profile {record.profile} are not packaged.")
    elif record and record.profile != SUBMITTABLE:
        yield Step(
            f"Runs of the profile {record.profile} are short and not submittable; repeat them with:",
            recorded_command(record, "submit", profile=SUBMITTABLE, package=False),
        )
    if not column.margins:
        return
    nearest = min(column.margins, key=lambda one: one.share)
    if nearest.share < NEAR:
        yield Step(
            f"{nearest.name} is only {percent(nearest.share)} below its limit: a repeat may be INVALID. "
            "Lower target_qps slightly, or repeat the run to see its spread."
        )
    elif nearest.share > _FAR:
        yield Step(
            f"The nearest limit, of the {nearest.name}, is {percent(nearest.share)} away: a higher target_qps may be "
            "VALID. To search it:",
            _tune_command(column),
        )


def _tune_command(column: Column) -> str:
    """The command that searches the target with the options of the run."""
    run = column.any_run
    if run.record:
        return recorded_command(run.record, "tune")
    return command_line("tune", model=column.benchmark, scenarios=column.scenario, system_name=run.system)
