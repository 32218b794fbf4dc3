"""The command status."""

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from harness_llm.cli.planned import planned_pipeline
from harness_llm.config.options import Options
from harness_llm.config.request import Request, load_requests
from harness_llm.paths import Workspace
from harness_llm.pipeline.panel import Panel
from harness_llm.runs.selection import Selection


def status(options: Options, *, as_json: bool) -> None:
    """Print a table of scenarios and tests, then a line for each run that is not finished."""
    documents = []
    for request in load_requests(options, Workspace()):
        pipeline = planned_pipeline(request, Panel(Console(stderr=True)), company=False)
        selection = pipeline.candidates(pipeline.assets()).select()
        if as_json:
            documents.append(_status_document(pipeline.request, pipeline.unprepared(), selection))
        else:
            _print_status(pipeline.request, pipeline.unprepared(), selection)
    if as_json:
        sys.stdout.write(json.dumps(documents, indent=2) + "\n")


def _status_document(request: Request, unprepared: list[str], selection: Selection) -> dict[str, Any]:
    """One benchmark; `path` is that of the selected run, or of the newest attempt."""
    return {
        "benchmark": request.benchmark.name,
        "system": request.options.system_name,
        "round": request.round.round,
        "division": request.options.division,
        "profile": request.profile.name,
        "unprepared": unprepared,
        "runs": [
            {
                "scenario": status.run_key.scenario,
                "test": status.run_key.test,
                "state": str(status.state_text),
                "reason": status.reason,
                "path": str(status.run.path) if status.run else None,
            }
            for status in selection.run_keys
        ],
    }


def _print_status(request: Request, unprepared: list[str], selection: Selection) -> None:
    title = f"{request.benchmark.name} on {request.options.system_name}"
    table = Table("scenario", *request.tests, title=title)
    for plan in request.scenarios:
        run_keys = [s for s in selection.run_keys if s.run_key.scenario == plan.scenario]
        table.add_row(plan.scenario, *(s.state_text for s in run_keys))
    console = Console()
    console.print(table)
    for stage in unprepared:
        console.print(f"not prepared: {stage}", highlight=False)
    for run_key in selection.missing:
        console.print(f"{run_key.run_key}: {run_key.reason}", soft_wrap=True, highlight=False, markup=False)
