"""The commands package and check."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness_llm.checker import findings_report as report
from harness_llm.checker.final_report import keep_report
from harness_llm.checker.findings import Finding, Severity, exit_code
from harness_llm.checker.judged_results import judged_results
from harness_llm.checker.official import OfficialVerdict
from harness_llm.checker.submission_tree import Tree
from harness_llm.checker.tree_round import choose_round
from harness_llm.cli.each_benchmark import each_benchmark
from harness_llm.cli.submission_report import report_submission
from harness_llm.config.commands import repeat, typed
from harness_llm.config.inference_checkout import checkout
from harness_llm.config.options import Options
from harness_llm.config.plan import plan_scenarios
from harness_llm.config.request import Request, check_request, load_requests, require_names
from harness_llm.config.rules import load_round
from harness_llm.errors import ConfigError, GateFailed
from harness_llm.paths import Workspace
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.submit import Pipeline, check_tree
from harness_llm.submission.archive import archive
from harness_llm.submission.package import Package
from harness_llm.submission.tree import locked


def package(options: Options, panel: Panel, *, calibration_only: bool) -> None:
    """Make the tree of finished runs, or only its calibration document, which needs no run."""
    require_names(options)
    make = _package_calibration if calibration_only else _package
    each_benchmark(load_requests(options, Workspace()), lambda request: make(request, panel), panel)


def _package_calibration(request: Request, panel: Panel) -> None:
    document, notices = Pipeline(plan_scenarios(check_request(request)), panel).package_calibration()
    for notice in notices:
        panel.say(notice)
    sys.stdout.write(f"{document}\n")


def _package(request: Request, panel: Panel) -> None:
    pipeline = Pipeline(plan_scenarios(check_request(request)), panel)
    if not request.profile.packaged:
        raise ConfigError(
            f"runs of the profile {request.profile.name} are not packaged",
            hint=f"{typed(profile='smoke')}; for a result, {typed(profile='valid')}",
        )
    made = pipeline.package()
    check_and_archive(request, panel, made)
    report_submission(request, made, panel)


def check_and_archive(request: Request, panel: Panel, made: Package) -> None:
    """Check the tree, archive it if the check passes, and print both paths.

    Raises:
        GateFailed: the check found errors; the tree stays, without an archive.
    """
    with locked(made.tree.parent):  # until the archive is complete, no other process replaces the tree
        archived = _archive_checked(request, panel, made.tree)
    for notice in made.notices:
        panel.say(notice)
    panel.say(f"keep the complete accuracy logs that {made.manifest} lists")
    sys.stdout.write(f"{made.tree}\n")
    if not archived:
        raise GateFailed(
            "the check of the tree found errors, so no archive was made",
            where=str(made.tree),
            hint=f"after a correction: {_again(request.options)}",
        )
    sys.stdout.write(f"{archived}\n")


def _archive_checked(request: Request, panel: Panel, tree: Path) -> Path | None:
    """Check the tree, archive it, and keep the official report; returns None, without an archive, for errors."""
    findings, verdicts = check_tree(choose_round(tree, request.round.round))
    panel.say(report.render(findings))
    if verdicts:
        panel.say(report.render_official(verdicts))
    archived = None if _check_exit_code(findings, verdicts) else archive(tree, request.options.company)
    for line in keep_report(tree, verdicts, request.round.round, checkout(request.workspace)):
        panel.say(line)
    return archived


def _again(options: Options) -> str:
    """The command line of package, which does not use the cluster of the runs."""
    return repeat(replace(options, ray=""), verb="package", company=options.company)


def _check_exit_code(findings: Sequence[Finding], verdicts: Sequence[OfficialVerdict]) -> int:
    """The official checker does not support smoke runs, so its verdict does not count for a tree of such runs."""
    if any(finding.severity is Severity.SCALE for finding in findings):
        return exit_code(findings)
    return exit_code(findings) or int(not all(verdict.passed for verdict in verdicts))


def check(tree: Path, round_name: str, *, as_json: bool) -> int:
    """Check a tree and print the findings and the results; returns the exit code."""
    chosen = choose_round(tree, round_name)
    sys.stderr.write(f"{chosen}\n")
    findings, verdicts = check_tree(chosen)
    results = judged_results(Tree(tree, load_round(chosen.name)), findings)
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(chosen, findings, results, verdicts), indent=2) + "\n")
    else:
        sys.stdout.write(report.render(findings, results) + "\n")
        if verdicts:
            sys.stdout.write(report.render_official(verdicts) + "\n")
    return _check_exit_code(findings, verdicts)
