"""The commands of the command line."""

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from harness_llm.analysis import compare_report, run_table
from harness_llm.analysis.bundle import ask_doctor, make_bundle, open_run_folder
from harness_llm.analysis.compare import compare as compare_runs
from harness_llm.analysis.repeats import read_runs, split_paths
from harness_llm.analysis.run_row import run_row
from harness_llm.analysis.run_selection import choose
from harness_llm.analysis.verdict import gate, parse_share, verdicts
from harness_llm.checker import findings_report as report
from harness_llm.checker.final_report import keep_report
from harness_llm.checker.findings import Finding, Severity, exit_code
from harness_llm.checker.official import OfficialVerdict
from harness_llm.checker.submission_tree import declared_round
from harness_llm.config.inference_checkout import checkout
from harness_llm.config.options import Options
from harness_llm.config.plan import plan_scenarios
from harness_llm.config.profile import Profile
from harness_llm.config.request import Request, check_request, load_request, load_requests, newest_round, require_names
from harness_llm.errors import ConfigError, GateFailed, HarnessError
from harness_llm.evaluate.accuracy_file import render as render_accuracy
from harness_llm.evaluate.accuracy_file import write as write_accuracy
from harness_llm.evaluate.compliance import TESTS
from harness_llm.evaluate.run_result import TOO_FEW, gather
from harness_llm.loadgen.logs import ACCURACY
from harness_llm.paths import Workspace
from harness_llm.pipeline.attempts import RunAttempts, missing_runs_error
from harness_llm.pipeline.doctor.doctor import ReadyBenchmark, purpose_of, require_checks
from harness_llm.pipeline.doctor.purpose import Purpose
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.submit import Pipeline, build_pipeline, check_tree
from harness_llm.replicas.ray.cluster import query_cluster
from harness_llm.runs.record import find_runs
from harness_llm.runs.selection import Selection
from harness_llm.submission.archive import archive, remove_archive
from harness_llm.submission.package import Package


def submit(options: Options, panel: Panel, *, dry_run: bool) -> None:
    """Check all benchmarks, then for each: plan, run what is missing, package, check, archive.

    Raises:
        HarnessError: a benchmark is not complete; the others are.
    """
    requests = load_requests(options, Workspace())
    if dry_run:
        for request in requests:
            _print_plan(request, panel)
        return
    _each(require_checks(requests, purpose_of, panel.say), lambda ready: _submit(ready, panel), panel)


def _submit(ready: ReadyBenchmark, panel: Panel) -> None:
    request, pipeline = ready.request, build_pipeline(ready.request, panel, ready.cluster)
    if ready.purpose is Purpose.SUBMIT:
        made = pipeline.submit() if request.requested_tests else pipeline.package()
        _check_and_archive(request, panel, made)
    else:
        _report_runs(pipeline.complete(), request.profile, panel, f"{request.options.command()} --no-package")


def _each(benchmarks: Sequence[ReadyBenchmark], do: Callable[[ReadyBenchmark], None], panel: Panel) -> None:
    """Call `do` with each benchmark, after the failure of another one too, unless --stop-on-failure is set.

    Raises:
        HarnessError: the failure with the highest exit code; the others are printed.
    """
    failures: list[HarnessError] = []
    for ready in benchmarks:
        try:
            do(ready)
        except HarnessError as error:
            if ready.request.options.stop_on_failure:
                raise
            failures.append(error)
    failures.sort(key=lambda failure: failure.exit_code)
    for failure in failures[:-1]:
        panel.say(f"error: {failure}")
    if failures:
        raise failures[-1]


def _print_plan(request: Request, panel: Panel) -> None:
    require_names(request.options, company=purpose_of(request) is Purpose.SUBMIT)
    request = plan_scenarios(check_request(request))
    address = request.options.ray
    cluster = query_cluster(address, request.workspace.stage_log("nodes")) if address else None
    pipeline = build_pipeline(request, panel, cluster)
    pipeline.announce(pipeline.candidates(pipeline.assets()).select())


def prepare(options: Options, panel: Panel) -> None:
    """Download, train and quantize what `submit` needs."""
    for ready in require_checks(load_requests(options, Workspace()), lambda _: Purpose.PREPARE, panel.say):
        build_pipeline(ready.request, panel, ready.cluster).prepare()


def run(options: Options, panel: Panel) -> None:
    """Run the requested tests, even if they have results.

    Raises:
        HarnessError: a run is not VALID.
    """

    def measure(ready: ReadyBenchmark) -> None:
        request = ready.request
        again = f"{request.options.command(verb='run')} --tests {','.join(request.requested_tests)}"
        _report_runs(build_pipeline(request, panel, ready.cluster).run(), request.profile, panel, again)

    _each(require_checks(load_requests(options, Workspace()), lambda _: Purpose.MEASURE, panel.say), measure, panel)


def _report_runs(runs: Sequence[RunAttempts], profile: Profile, panel: Panel, command: str) -> None:
    """Print the folder of each run.

    Raises:
        HarnessError: a run is not VALID, for another reason than that the profile's runs are short; `command` repeats
            them.
    """
    for attempts in runs:
        if attempts.run:
            sys.stdout.write(f"{attempts.run.path}\n")
    if not profile.packaged:
        for attempts in filter(_too_few, runs):
            run_key = attempts.run_key
            panel.say(f"{run_key.scenario} {run_key.test} completed; LoadGen's early stopping needs more queries")
        panel.say(f"runs of the profile {profile.name} are not packaged")
    missing = [one for one in runs if not one.valid and (profile.packaged or not _too_few(one))]
    if missing:
        raise missing_runs_error(missing, len(runs), command)


def _too_few(attempts: RunAttempts) -> bool:
    return not attempts.error and attempts.run is not None and attempts.run.reasons == [TOO_FEW]


def package(options: Options, panel: Panel, *, calibration_only: bool) -> None:
    """Make the tree of finished runs, or only its calibration document, which needs no run."""
    require_names(options)
    for request in load_requests(options, Workspace()):
        pipeline = Pipeline(plan_scenarios(check_request(request)), panel)
        if calibration_only:
            document, notices = pipeline.package_calibration()
            for notice in notices:
                panel.say(notice)
            sys.stdout.write(f"{document}\n")
        elif request.profile.packaged:
            _check_and_archive(request, panel, pipeline.package())
        else:
            name = request.profile.name
            raise ConfigError(
                f"runs of the profile {name} are not packaged", hint="--profile smoke, or valid for a result"
            )


def _check_and_archive(request: Request, panel: Panel, made: Package) -> None:
    """Check the tree, archive it if the check passes, and print both paths.

    Raises:
        GateFailed: the check found errors; the tree stays, without an archive.
    """
    findings, verdicts = check_tree(made.tree, request.round.round)
    panel.say(report.render(findings))
    if verdicts:
        panel.say(report.render_official(verdicts))
    for line in keep_report(made.tree, verdicts, request.round.round, checkout(request.workspace)):
        panel.say(line)
    for notice in made.notices:
        panel.say(notice)
    panel.say(f"keep the complete accuracy logs that {made.manifest} lists")
    sys.stdout.write(f"{made.tree}\n")
    if _check_exit_code(findings, verdicts):
        remove_archive(made.tree)
        raise GateFailed(
            "the check of the tree found errors, so no archive was made",
            where=str(made.tree),
            hint=f"after a correction: {request.options.command(verb='package')} --company {request.options.company}",
        )
    sys.stdout.write(f"{archive(made.tree, request.options.company)}\n")


def _check_exit_code(findings: Sequence[Finding], verdicts: Sequence[OfficialVerdict]) -> int:
    """The official checker does not support smoke runs, so its verdict does not count for a tree of such runs."""
    if any(finding.severity is Severity.SCALE for finding in findings):
        return exit_code(findings)
    return exit_code(findings) or int(not all(verdict.passed for verdict in verdicts))


def status(options: Options, *, as_json: bool) -> None:
    """Print a table of scenarios and tests, then a line for each run that is not finished."""
    require_names(options, company=False)
    documents = []
    for request in (plan_scenarios(check_request(one)) for one in load_requests(options, Workspace())):
        pipeline = Pipeline(request, Panel(Console(stderr=True)))
        selection = pipeline.candidates(pipeline.assets(), current=False).select()
        if as_json:
            documents.append(_status_document(request, pipeline.unprepared(), selection))
        else:
            _print_status(request, pipeline.unprepared(), selection)
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


def runs(where: Sequence[str], order: str, last: int | None, *, as_csv: bool, as_json: bool) -> None:
    """Print a row per run.

    Raises:
        ConfigError: a condition or the order is wrong.
    """
    rows = choose([run_row(run) for run in find_runs(Workspace().logs)], where, order, last)
    if as_csv or as_json:
        sys.stdout.write(run_table.as_csv(rows) if as_csv else run_table.as_json(rows))
    elif rows:
        run_table.show(rows, Console())
    else:
        sys.stderr.write(f"no runs{' that meet the conditions' if where else ''} below {Workspace().logs}\n")


def score(log_dir: Path, options: Options, output: Path | None) -> None:
    """Score the answers and print accuracy.txt.

    Raises:
        GateFailed: the scores miss the gate of every variant.
    """
    request = check_request(load_request(options, Workspace()))
    pipeline = Pipeline(request, Panel(Console(stderr=True)))
    scorer = pipeline.scorer(pipeline.required_assets())
    scores = scorer.score(log_dir / ACCURACY, "accuracy", request.samples("accuracy"))
    if output:
        write_accuracy(output, scores)
    sys.stdout.write(render_accuracy(scores))
    missed = scorer.missed_gates(scores)
    if all(missed.values()):
        found = "; ".join(f"{name}: {line}" for name, lines in missed.items() for line in lines)
        raise GateFailed("the answers miss the accuracy gate", where=str(log_dir), found=found)


def verify(log_dir: Path, options: Options, output: Path | None) -> None:
    """Verify a compliance test and print the file that the official checker reads.

    Raises:
        ConfigError: the benchmark has several compliance tests, and --test names none.
        GateFailed: the test failed.
    """
    request = check_request(load_request(options, Workspace()))
    test, log = _compliance_test(request), log_dir / ACCURACY

    def scores() -> dict[str, float]:
        pipeline = Pipeline(request, Panel(Console(stderr=True)))
        return pipeline.scorer(pipeline.required_assets()).score(log, test, request.samples(test))

    (scenario,) = request.options.measured
    verdict = TESTS[test](gather(log, scenario, request.benchmark, request.round.compliance[test], scores))
    text = verdict.render()
    if output:
        output.write_text(text)
    sys.stdout.write(text)
    if not verdict.passed:
        raise GateFailed(f"{test} failed", where=str(log_dir), found="; ".join(verdict.failures[:4]))


def _compliance_test(request: Request) -> str:
    """The test that --test names, or the benchmark's only one."""
    own = request.rules.compliance
    named = [test for test in own if test in request.requested_tests]
    if len(named) != 1:
        raise ConfigError(
            f"{request.benchmark.name} has {len(own)} compliance tests in round {request.round.round}",
            expected=f"--test {' or '.join(own)}" if own else "a round or a benchmark that has one",
        )
    return named[0]


def compare(runs_a: str, runs_b: str, *, fail_if_slower: str, as_json: bool) -> int:
    """Print two sides with one or more runs each; returns the exit code of --fail-if-slower, else 0."""
    share = parse_share(fail_if_slower) if fail_if_slower else None
    paths = [split_paths(text) for text in (runs_a, runs_b)]
    sides = [read_runs(own) for own in paths]
    found = compare_runs(*sides)
    if as_json:
        sys.stdout.write(json.dumps(compare_report.as_json(found), indent=2) + "\n")
    else:
        console = Console()
        for name, own, runs in zip("AB", paths, sides, strict=True):
            alone = [scenario for scenario in runs if scenario not in found]
            text = f"{name}: {', '.join(map(str, own))}" + (f"; only {name} has {', '.join(alone)}" if alone else "")
            console.print(text, soft_wrap=True, highlight=False, markup=False)
        compare_report.show(found, console)
    if share is None:
        return 0
    code, lines = gate({scenario: verdicts(one) for scenario, one in found.items()}, share)
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    return code


def bundle(folder: Path, output: Path | None) -> None:
    """Write the redacted bundle of a run, and list its files.

    Raises:
        ConfigError: the folder is no run directory.
    """
    run = open_run_folder(folder)
    made = make_bundle(run, ask_doctor(run), Workspace(), output)
    for name, size in made.files.items():
        sys.stderr.write(f"{size:>9,} bytes  {name}\n")
    counts = ", ".join(f"{count} {kind}" for kind, count in made.redacted.items()) or "none"
    sys.stderr.write(f"redacted: {counts}\n")
    sys.stderr.write("The patterns do not find every private text, and the system name stays.\n")
    sys.stderr.write(f"Look at the files before you publish them: tar -xzf {shlex.quote(str(made.path))}\n")
    sys.stdout.write(f"{made.path}\n")


def check(tree: Path, round_name: str, *, as_json: bool) -> int:
    """Check a tree and print the findings; returns the exit code."""
    if not tree.is_dir():
        raise ConfigError("there is no such tree", where=str(tree), hint="name the folder with closed/ or open/")
    round_name = round_name or declared_round(tree) or newest_round()
    sys.stderr.write(f"by the rules of round {round_name}\n")
    findings, verdicts = check_tree(tree, round_name)
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(findings, verdicts), indent=2) + "\n")
    else:
        sys.stdout.write(report.render(findings) + "\n")
        if verdicts:
            sys.stdout.write(report.render_official(verdicts) + "\n")
    return _check_exit_code(findings, verdicts)
