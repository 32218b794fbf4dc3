"""The report of what a user names: runs, a submission tree or a tuning session."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness_llm.analysis.report.html_page import render_page
from harness_llm.analysis.report.report_inputs import read_inputs
from harness_llm.analysis.report.runs_report import runs_page
from harness_llm.analysis.report.tree_results import TreeReport, read_tree
from harness_llm.analysis.report.tuning_report import tuning_page
from harness_llm.checker.findings import Severity
from harness_llm.errors import ConfigError
from harness_llm.paths import Workspace


@dataclass(frozen=True)
class ReportPage:
    """A report; `name` is that of its file."""

    name: str
    html: str


def report_page(paths: Sequence[Path], workspace: Workspace) -> ReportPage:
    """The report of `paths`.

    Raises:
        ConfigError: a path cannot be reported, or the paths are of several kinds.
    """
    inputs = read_inputs(paths, workspace)
    if inputs.columns and not (inputs.trees or inputs.sessions):
        first = inputs.columns[0]
        return ReportPage(f"{first.path.parts[-5]}_{first.any_run.system}", runs_page(inputs.columns, workspace))
    if len(inputs.trees) == 1 and not (inputs.columns or inputs.sessions):
        return ReportPage(inputs.trees[0].name, tree_page(inputs.trees[0]))
    if len(inputs.sessions) == 1 and not (inputs.columns or inputs.trees):
        return ReportPage(inputs.sessions[0].name, tuning_page(inputs.sessions[0]))
    raise ConfigError(
        "a report is of runs, of one submission tree or of one tuning session",
        found=f"{len(inputs.columns)} scenarios of runs, {len(inputs.trees)} trees, {len(inputs.sessions)} sessions",
        hint="make a report of each",
    )


def tree_page(path: Path) -> str:
    """The page of the submission tree in `path`."""
    tree = read_tree(path)
    context = {"title": path.name, "subtitle": _subtitle(tree), "tree": tree, "summary": list(_summary(tree))}
    return render_page("tree.html.j2", context)


def _subtitle(tree: TreeReport) -> str:
    small = f"; profile {tree.small}, not submittable" if tree.small else ""
    return f"submission tree, checked by the rules of round {tree.round_name}{small}"


def _summary(tree: TreeReport) -> list[str]:
    states = [result.state for result in tree.results]
    findings = [one for result in tree.results for one in result.findings] + list(tree.findings)
    errors = sum(one.severity is Severity.ERROR for one in findings)
    warnings = sum(one.severity is Severity.WARNING for one in findings)
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)) or "none"
    verdict = "The check would refuse the tree: correct the errors below." if errors else "The check finds no error."
    return [f"{len(states)} results: {counts}.", f"{verdict} {errors} errors, {warnings} warnings."]
