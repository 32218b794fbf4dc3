"""The report of a submission, beside its archive."""

from pathlib import Path

from harness_llm.analysis.report.column import Column
from harness_llm.analysis.report.html_page import write_page
from harness_llm.analysis.report.runs_report import runs_page
from harness_llm.config.commands import command
from harness_llm.config.request import Request
from harness_llm.pipeline.panel import Panel
from harness_llm.runs.record import Run
from harness_llm.submission.package import Package


def report_submission(request: Request, made: Package, panel: Panel) -> None:
    """Write the report of the packaged runs beside their tree, and print its path, or why there is none."""
    try:
        panel.say(f"report: {_write(request, made)}")
    except Exception as error:  # noqa: BLE001 - the submission is complete without its report
        panel.say(f"no report was made: {error!r}\nto repeat it: {command('-v', 'report', str(made.tree))}")


def _write(request: Request, made: Package) -> Path:
    scenarios: dict[str, dict[str, Run]] = {}
    for run in made.runs:
        scenarios.setdefault(run.run_key.scenario, {})[run.run_key.test] = run
    columns = [Column("", runs) for runs in scenarios.values()]
    file = made.tree.with_name(f"{made.tree.name}_{request.benchmark.name}_report.html")
    return write_page(file, runs_page(columns, request.workspace))
