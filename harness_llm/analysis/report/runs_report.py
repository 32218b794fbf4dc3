"""The report of runs."""

import datetime as dt
from collections.abc import Sequence

from harness_llm.analysis.report.advice import Step
from harness_llm.analysis.report.column import Column, by_scenario
from harness_llm.analysis.report.html_page import render_page
from harness_llm.analysis.report.report_inputs import started
from harness_llm.analysis.report.scenario_section import ScenarioSection, scenario_section
from harness_llm.analysis.report.wording import instant
from harness_llm.paths import Workspace
from harness_llm.runs.record import State


def runs_page(columns: Sequence[Column], workspace: Workspace) -> str:
    """The page of `columns`, which `report_inputs.named` has named."""
    sections = [scenario_section(own, workspace) for own in by_scenario(columns).values()]
    return render_page(
        "runs.html.j2",
        {
            "title": _title(columns),
            "subtitle": _subtitle(columns),
            "sections": sections,
            "legends": {column.path: started(column) for column in columns},
            "steps": _steps(sections),
            "commands": _commands(columns),
        },
    )


def _title(columns: Sequence[Column]) -> str:
    benchmarks = dict.fromkeys(column.benchmark for column in columns)
    systems = dict.fromkeys(column.any_run.system for column in columns)
    return f"{', '.join(benchmarks)} on {', '.join(systems)}"


def _subtitle(columns: Sequence[Column]) -> str:
    rows = [column.row for column in columns]
    facts = (
        ("round", {row.round for row in rows}),
        ("division", {row.division for row in rows}),
        ("profile", {row.profile for row in rows}),
        ("engine", {row.engine for row in rows}),
    )
    words = [f"{name} {', '.join(sorted(filter(None, values)))}" for name, values in facts if any(values)]
    count = sum(len(column.runs) for column in columns)
    return "; ".join([f"{count} run{'s' * (count > 1)}", *words, f"report of {instant(dt.datetime.now(dt.UTC))}"])


def _steps(sections: Sequence[ScenarioSection]) -> dict[Step, list[str]]:
    """What to do, each step once, with the runs that it concerns; runs that are not VALID first."""
    found: dict[Step, list[str]] = {}
    judged = [(section, one) for section in sections for one in section.judged]
    for section, one in sorted(judged, key=lambda pair: pair[1].column.state is State.VALID):
        for step in one.steps:
            found.setdefault(step, []).append(" ".join(filter(None, (section.title, one.column.name))))
    return found


def _commands(columns: Sequence[Column]) -> dict[str, list[str]]:
    """Directories of the runs by the command that made them."""
    found: dict[str, list[str]] = {}
    for column in columns:
        for run in column.runs.values():
            if run.record:
                found.setdefault(run.record.command, []).append(str(run.path))
    return found
