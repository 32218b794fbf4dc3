"""The commands that run tests: submit, prepare, run."""

import sys
from collections.abc import Sequence
from typing import Any

from harness_llm.cli.each_benchmark import each_benchmark
from harness_llm.cli.package_command import check_and_archive
from harness_llm.cli.planned import planned_pipeline
from harness_llm.cli.submission_report import report_submission
from harness_llm.config.commands import repeat
from harness_llm.config.options import Options
from harness_llm.config.profile import Profile
from harness_llm.config.request import Request, load_requests
from harness_llm.evaluate.run_result import TOO_FEW
from harness_llm.paths import Workspace
from harness_llm.pipeline.attempts import RunAttempts, missing_runs_error
from harness_llm.pipeline.doctor.doctor import ReadyBenchmark, purpose_of, require_checks
from harness_llm.pipeline.doctor.purpose import Purpose
from harness_llm.pipeline.live.metrics import serve_metrics
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.profiling import check_profiling
from harness_llm.pipeline.submit import build_pipeline
from harness_llm.runs.stored_source import remember_source


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
    remember_source(Workspace())
    ready = require_checks(requests, purpose_of, panel.say)
    with serve_metrics(panel.state, options.metrics_port):
        each_benchmark(ready, lambda one: _submit(one, panel), panel, stop_on_failure=options.stop_on_failure)


def _submit(ready: ReadyBenchmark, panel: Panel) -> None:
    request, pipeline = ready.request, build_pipeline(ready.request, panel, ready.cluster)
    if ready.purpose is Purpose.SUBMIT:
        made = pipeline.submit() if request.requested_tests else pipeline.package()
        check_and_archive(request, panel, made)
        report_submission(request, made, panel)
    else:
        more: dict[str, Any] = {} if request.options.package else {"package": False}
        again = repeat(request.options, **more)
        _report_runs(pipeline.complete(), request.profile, panel, again)


def _print_plan(request: Request, panel: Panel) -> None:
    pipeline = planned_pipeline(request, panel, company=purpose_of(request) is Purpose.SUBMIT)
    candidates = pipeline.candidates(pipeline.assets())
    pipeline.announce(candidates.select(), candidates.wanted.present)


def prepare(options: Options, panel: Panel) -> None:
    """Download, train and quantize what `submit` needs."""
    for ready in require_checks(load_requests(options, Workspace()), lambda _: Purpose.PREPARE, panel.say):
        build_pipeline(ready.request, panel, ready.cluster).prepare()


def run(options: Options, panel: Panel) -> None:
    """Run the requested tests, even if they have results.

    Raises:
        HarnessError: a run is not VALID.
    """

    requests = load_requests(options, Workspace())
    for request in requests:
        check_profiling(request)

    def measure(one: ReadyBenchmark) -> None:
        request = one.request
        window = request.options.profile_window
        more = {"profile_window": window} if window else {}
        again = repeat(request.options, verb="run", tests=request.requested_tests, **more)
        _report_runs(build_pipeline(request, panel, one.cluster).run(), request.profile, panel, again)

    remember_source(Workspace())
    ready = require_checks(requests, lambda _: Purpose.MEASURE, panel.say)
    with serve_metrics(panel.state, options.metrics_port):
        each_benchmark(ready, measure, panel, stop_on_failure=options.stop_on_failure)


def _report_runs(runs: Sequence[RunAttempts], profile: Profile, panel: Panel, command: str) -> None:
    """Print the folder of each run.

    Raises:
        HarnessError: a run is not VALID or not allowed in the division, for another reason than that the profile's runs
            are short; `command` repeats them.
    """
    for attempts in runs:
        if attempts.run:
            sys.stdout.write(f"{attempts.run.path}\n")
    if not profile.packaged:
        for attempts in filter(_too_few, runs):
            run_key = attempts.run_key
            panel.say(f"{run_key.scenario} {run_key.test} completed; LoadGen's early stopping needs more queries")
        panel.say(f"runs of the profile {profile.name} are not packaged")
    missing = [one for one in runs if not (one.valid or one.profiled) and (profile.packaged or not _too_few(one))]
    if missing:
        raise missing_runs_error(missing, len(runs), command)


def _too_few(attempts: RunAttempts) -> bool:
    return not attempts.error and attempts.run is not None and attempts.run.reasons == [TOO_FEW]
