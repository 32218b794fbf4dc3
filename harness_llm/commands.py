"""What each command of the command line does."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness_llm.analysis import compare as comparison
from harness_llm.checker import findings_report as report
from harness_llm.checker.final_report import keep_report
from harness_llm.checker.findings import Finding, Severity, exit_code
from harness_llm.checker.official import OfficialVerdict
from harness_llm.checker.submission_tree import declared_round
from harness_llm.config.inference_checkout import checkout
from harness_llm.config.options import Choices, newest_round, require_names
from harness_llm.config.profile import Profile
from harness_llm.config.request import Request, resolve, understand
from harness_llm.errors import ConfigError, GateFailed
from harness_llm.evaluate.accuracy_file import render as render_accuracy
from harness_llm.evaluate.accuracy_file import write as write_accuracy
from harness_llm.evaluate.compliance import TESTS
from harness_llm.evaluate.run_result import TOO_FEW, gather
from harness_llm.loadgen.logs import ACCURACY
from harness_llm.paths import Workspace
from harness_llm.pipeline.doctor.doctor import purpose_of, require
from harness_llm.pipeline.doctor.purpose import Purpose
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.submit import Pipeline, build_pipeline, check_tree, describe_run
from harness_llm.replicas.ray.cluster import query_cluster
from harness_llm.runs.record import Run, State
from harness_llm.submission.package import Package


def submit(chosen: Sequence[Choices], panel: Panel, *, dry_run: bool, packed: bool) -> None:
    """Check everything, then for each benchmark: plan, run what is missing, package, check."""
    if dry_run:
        for choices in chosen:
            _plan(choices, panel, packed=packed)
        return
    for ready in require(chosen, lambda choices: purpose_of(choices, packed=packed), panel.say):
        pipeline = build_pipeline(ready.request, panel, ready.cluster)
        if ready.purpose is Purpose.SUBMIT:
            _finish(ready.request, panel, pipeline.submit() if ready.request.asked else pipeline.package())
        else:
            _end(pipeline.complete(), ready.request.profile, panel)


def _plan(choices: Choices, panel: Panel, *, packed: bool) -> None:
    """Print what `submit` would do."""
    require_names(choices, company=purpose_of(choices, packed=packed) is Purpose.SUBMIT)
    request = resolve(choices, Workspace())
    cluster = query_cluster(choices.ray, request.workspace.stage_log("nodes")) if choices.ray else None
    build_pipeline(request, panel, cluster).announce()


def prepare(chosen: Sequence[Choices], panel: Panel) -> None:
    """Put in place what `submit` runs, what is to be downloaded included."""
    for ready in require(chosen, lambda _: Purpose.PREPARE, panel.say):
        build_pipeline(ready.request, panel, ready.cluster).prepare()


def _end(runs: Sequence[Run], profile: Profile, panel: Panel) -> None:
    """Say where the runs lie; one that is no result ends with 1, but for one that its profile makes too short."""
    for run in runs:
        sys.stdout.write(f"{run.path}\n")
    bad = [run for run in runs if run.state is not State.VALID]
    if not profile.packaged:
        for run in (run for run in bad if run.reasons == [TOO_FEW]):
            panel.say(
                f"{run.run_key.scenario} {run.run_key.test} ran well; LoadGen's early stopping needs more queries"
            )
        bad = [run for run in bad if run.reasons != [TOO_FEW]]
        panel.say(f"nothing is packaged of the profile {profile.name}")
    if bad:
        raise GateFailed("not every run is VALID", found="\n".join(describe_run(run) for run in bad))


def _finish(request: Request, panel: Panel, packed: Package) -> None:
    """Check the tree and say where it lies; errors end with 1."""
    findings, verdicts = check_tree(packed.tree, request.round.round)
    panel.say(report.render(findings))
    if verdicts:
        panel.say(report.render_official(verdicts))
    for line in keep_report(packed.tree, verdicts, request.round.round, checkout(request.workspace)):
        panel.say(line)
    for notice in packed.notices:
        panel.say(notice)
    panel.say(f"keep the whole accuracy logs that {packed.manifest} lists")
    sys.stdout.write(f"{packed.tree}\n{packed.archive}\n")
    if _verdict(findings, verdicts):
        raise GateFailed("the tree is complete, but the check found errors", where=str(packed.tree))


def _verdict(findings: Sequence[Finding], verdicts: Sequence[OfficialVerdict]) -> int:
    """The exit code; the official checker knows no smoke runs, so it has no say over a tree that admits to be one."""
    if any(finding.severity is Severity.SCALE for finding in findings):
        return exit_code(findings)
    return exit_code(findings) or int(not all(verdict.passed for verdict in verdicts))


def run(chosen: Sequence[Choices], panel: Panel) -> None:
    """Run runs whatever was run before; a run that is not VALID ends with 1."""
    for ready in require(chosen, lambda _: Purpose.MEASURE, panel.say):
        _end(build_pipeline(ready.request, panel, ready.cluster).run(), ready.request.profile, panel)


def package(choices: Choices, panel: Panel, *, calibration_only: bool) -> None:
    """Make the tree of runs that are there, or only its calibration document, which needs none."""
    require_names(choices)
    request = resolve(choices, Workspace())
    if calibration_only:
        document, notices = Pipeline(request, panel).package_calibration()
        for notice in notices:
            panel.say(notice)
        sys.stdout.write(f"{document}\n")
        return
    if not request.profile.packaged:
        name = request.profile.name
        raise ConfigError(f"nothing is packaged of the profile {name}", hint="--profile smoke, or valid for a result")
    _finish(request, panel, Pipeline(request, panel).package())


def status(choices: Choices) -> None:
    """Print the matrix, then a line for each run that is not done."""
    require_names(choices, company=False)
    request = resolve(choices, Workspace())
    pipeline = Pipeline(request, Panel(Console(stderr=True)))
    selection = pipeline.select(pipeline.assets())
    table = Table("scenario", *request.tests, title=f"{request.benchmark.name} on {choices.system}")
    for plan in request.scenarios:
        run_keys = [s for s in selection.run_keys if s.run_key.scenario == plan.scenario]
        table.add_row(plan.scenario, *(s.state_text for s in run_keys))
    console = Console()
    console.print(table)
    for stage in pipeline.unprepared():
        console.print(f"not prepared: {stage}", highlight=False)
    for run_key in selection.missing:
        console.print(f"{run_key.run_key}: {run_key.reason}", soft_wrap=True, highlight=False, markup=False)


def score(log_dir: Path, choices: Choices, output: Path | None) -> None:
    """Score answers, print accuracy.txt; a missed gate ends with 1."""
    request = understand(choices, Workspace())
    pipeline = Pipeline(request, Panel(Console(stderr=True)))
    scorer = pipeline.scorer(pipeline.required_assets())
    scores = scorer.score(log_dir / ACCURACY, "accuracy", request.samples("accuracy"))
    if output:
        write_accuracy(output, scores)
    sys.stdout.write(render_accuracy(scores))
    missed = scorer.verdicts(scores)
    if all(missed.values()):
        found = "; ".join(f"{name}: {line}" for name, lines in missed.items() for line in lines)
        raise GateFailed("the answers miss the accuracy gate", where=str(log_dir), found=found)


def verify(log_dir: Path, choices: Choices, output: Path | None) -> None:
    """Verify a compliance test, print the file that the official checker reads; a failure ends with 1.

    Raises:
        ConfigError: the benchmark has several such tests, and none is chosen.
    """
    request = understand(choices, Workspace())
    test, log = _compliance_test(request), log_dir / ACCURACY

    def score() -> dict[str, float]:
        pipeline = Pipeline(request, Panel(Console(stderr=True)))
        return pipeline.scorer(pipeline.required_assets()).score(log, test, request.samples(test))

    (scenario,) = choices.scenarios
    verdict = TESTS[test](gather(log, scenario, request.benchmark, request.round.compliance[test], score))
    text = verdict.render()
    if output:
        output.write_text(text)
    sys.stdout.write(text)
    if not verdict.passed:
        raise GateFailed(f"{test} failed", where=str(log_dir), found="; ".join(verdict.failures[:4]))


def _compliance_test(request: Request) -> str:
    """The one that was chosen, or the benchmark's only one."""
    own = request.rules.compliance
    chosen = [test for test in own if test in request.asked]
    if len(chosen) != 1:
        raise ConfigError(
            f"{request.benchmark.name} has {len(own)} compliance tests in round {request.round.round}",
            expected=f"--test {' or '.join(own)}" if own else "a round or a benchmark that has one",
        )
    return chosen[0]


def compare(run_a: Path, run_b: Path, *, as_json: bool) -> None:
    """Print two runs side by side."""
    runs_a, runs_b = comparison.read_runs(run_a), comparison.read_runs(run_b)
    found = comparison.compare(runs_a, runs_b)
    if as_json:
        sys.stdout.write(json.dumps(comparison.as_json(found), indent=2) + "\n")
        return
    console = Console()
    for name, folder, own in (("A", run_a, runs_a), ("B", run_b, runs_b)):
        alone = [scenario for scenario in own if scenario not in found]
        text = f"{name}: {folder}" + (f"; alone in having {', '.join(alone)}" if alone else "")
        console.print(text, soft_wrap=True, highlight=False, markup=False)
    comparison.show(found, console)


def check(tree: Path, round_name: str, *, as_json: bool) -> int:
    """Print the findings; the exit code."""
    if not tree.is_dir():
        raise ConfigError("there is no such tree", where=str(tree), hint="name the folder that holds closed/ or open/")
    round_name = round_name or declared_round(tree) or newest_round()
    sys.stderr.write(f"by the rules of round {round_name}\n")
    findings, verdicts = check_tree(tree, round_name)
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(findings, verdicts), indent=2) + "\n")
    else:
        sys.stdout.write(report.render(findings) + "\n")
        if verdicts:
            sys.stdout.write(report.render_official(verdicts) + "\n")
    return _verdict(findings, verdicts)
