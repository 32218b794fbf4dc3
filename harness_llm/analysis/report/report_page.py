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
from harness_llm.checker.results_report import counted_findings
from harness_llm.checker.tree_round import TreeRound, choose_round
from harness_llm.config.commands import command_line, name_of
from harness_llm.errors import ConfigError
from harness_llm.paths import Workspace


@dataclass(frozen=True)
class ReportPage:
    """A report; `name` is that of its file, `notice` a line on how it was made."""

    name: str
    html: str
    notice: str = ""


def report_page(paths: Sequence[Path], workspace: Workspace, round_name: str = "") -> ReportPage:
    """The report of `paths`; `round_name` is the round of a submission tree.

    Raises:
        ConfigError: a path cannot be reported, the paths are of several kinds, or runs are given a round.
    """
    inputs = read_inputs(paths, workspace)
    if round_name and not inputs.trees:
        raise ConfigError(
            f"{name_of('round')} is for submission trees", found="runs or a tuning session, whose round is recorded"
        )
    if inputs.columns and not (inputs.trees or inputs.sessions):
        first = inputs.columns[0]
        return ReportPage(f"{first.path.parts[-5]}_{first.any_run.system}", runs_page(inputs.columns, workspace))
    if len(inputs.trees) == 1 and not (inputs.columns or inputs.sessions):
        return tree_page(choose_round(inputs.trees[0], round_name))
    if len(inputs.sessions) == 1 and not (inputs.columns or inputs.trees):
        return ReportPage(inputs.sessions[0].name, tuning_page(inputs.sessions[0]))
    raise ConfigError(
        "a report is of runs, of one submission tree or of one tuning session",
        found=f"{len(inputs.columns)} scenarios of runs, {len(inputs.trees)} trees, {len(inputs.sessions)} sessions",
        hint="make a report of each",
    )


def tree_page(chosen: TreeRound) -> ReportPage:
    """The report of a submission tree."""
    tree, title = read_tree(chosen), chosen.tree.name
    context = {"title": title, "subtitle": _subtitle(tree), "tree": tree, "summary": list(_summary(tree))}
    check = command_line("check", str(chosen.tree), **({"round": chosen.name} if chosen.given else {}))
    return ReportPage(title, render_page("tree.html.j2", {**context, "check": check}), str(chosen))


def _subtitle(tree: TreeReport) -> str:
    small = f"; profile {tree.small}, not submittable" if tree.small else ""
    return f"submission tree, checked {tree.chosen}{small}"


def _summary(tree: TreeReport) -> list[str]:
    states = [result.state for result in tree.results]
    # One finding may concern several results.
    findings = {*tree.findings, *(one for result in tree.results for one in result.findings)}
    errors = sum(one.severity is Severity.ERROR for one in findings)
    warnings = sum(one.severity is Severity.WARNING for one in findings)
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)) or "none"
    verdict = "The check would refuse the tree: correct the errors below." if errors else "The check finds no error."
    return [f"{len(states)} results: {counts}.", f"{verdict} {counted_findings(errors, warnings)}."]
