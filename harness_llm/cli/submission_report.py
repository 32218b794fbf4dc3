"""The report of a submission, beside its archive."""

from pathlib import Path

from harness_llm.analysis.report.column import Column
from harness_llm.analysis.report.html_page import write_page
from harness_llm.analysis.report.runs_report import runs_page
from harness_llm.config.request import Request
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.submit import Pipeline
from harness_llm.runs.record import Run


def report_submission(request: Request, tree: Path, panel: Panel) -> None:
    """Write the report of the packaged runs beside `tree`, and print its path, or why there is none."""
    try:
        panel.say(f"report: {_write(request, tree, panel)}")
    except Exception as error:  # noqa: BLE001 - the submission is complete without its report
        panel.say(f"no report was made: {error!r}\nto repeat it: harness-llm -v report {tree}")


def _write(request: Request, tree: Path, panel: Panel) -> Path:
    pipeline = Pipeline(request, panel, machine={})
    selection = pipeline.candidates(pipeline.assets(), current=False).select()
    scenarios: dict[str, dict[str, Run]] = {}
    for status in selection.run_keys:
        if status.run and status.done:
            scenarios.setdefault(status.run.run_key.scenario, {})[status.run.run_key.test] = status.run
    columns = [Column("", runs) for runs in scenarios.values()]
    file = tree.with_name(f"{tree.name}_{request.benchmark.name}_report.html")
    return write_page(file, runs_page(columns, request.workspace))
