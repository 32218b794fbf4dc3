"""`harness-llm doctor`, and the same checks before submit, run and prepare."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness_llm.config.options import Options
from harness_llm.config.request import Request, load_requests
from harness_llm.errors import HarnessError
from harness_llm.paths import Workspace
from harness_llm.pipeline.doctor.check_result import CheckResult, Level, errors, from_error
from harness_llm.pipeline.doctor.disk_space import check_space, required_bytes
from harness_llm.pipeline.doctor.doctor_report import error_type, refuse, render, to_json
from harness_llm.pipeline.doctor.examination import Examination, Tell, examine
from harness_llm.pipeline.doctor.purpose import Part, Purpose

if TYPE_CHECKING:
    from harness_llm.replicas.ray.cluster import Cluster


def purpose_of(request: Request) -> Purpose:
    """Return SUBMIT if `harness-llm submit` packages the runs of `request`, else MEASURE."""
    return Purpose.SUBMIT if request.options.package and request.profile.packaged else Purpose.MEASURE


def doctor(options: Options, *, part: Part, as_json: bool) -> int:
    """Print the result of every check; returns the exit code.

    Args:
        part: checks to run.
        as_json: print one JSON document.
    """
    try:
        requests = load_requests(options, Workspace())
    except HarnessError as error:
        return show([from_error("Options", error)], as_json=as_json)
    examinations = [_examine(request, purpose_of(request), part, _tell) for request in requests]
    return show(combine_results(examinations), as_json=as_json)


def show(results: Sequence[CheckResult], *, as_json: bool) -> int:
    """Print `results`; return the exit code of their errors, else 0."""
    text = json.dumps(to_json(results), indent=2) if as_json else render(results)
    sys.stdout.write(f"{text}\n")
    found = errors(results)
    return error_type(found).exit_code if found else 0


def _examine(request: Request, purpose: Purpose, part: Part, tell: Tell) -> Examination:
    """Examine one benchmark; an error of a check keeps the results of the other benchmarks."""
    try:
        return examine(request, purpose, part=part, tell=tell)
    except HarnessError as error:
        return Examination([from_error(request.benchmark.name, error)], None, None)


def combine_results(examinations: Sequence[Examination]) -> list[CheckResult]:
    """Combine the results of several benchmarks; equal results appear once, disk space is summed."""
    results = dict.fromkeys(result for examination in examinations for result in examination.results)
    needs = [need for examination in examinations for need in examination.space]
    return [*results, *check_space(required_bytes(needs))]


@dataclass(frozen=True)
class ReadyBenchmark:
    """A benchmark without failed checks: what the command does with it, and its cluster."""

    purpose: Purpose
    request: Request
    cluster: "Cluster | None"


def require_checks(
    requests: Sequence[Request], purpose_of: Callable[[Request], Purpose], tell: Tell
) -> list[ReadyBenchmark]:
    """Check all benchmarks, print warnings through `tell`, and raise one error for all failed checks.

    Raises:
        ConfigError: all failed checks are configuration errors.
        EnvironmentMissing: at least one failed check is not a configuration error.
    """
    purposes = [purpose_of(request) for request in requests]
    examinations = [
        _examine(request, purpose, Part.ALL, tell) for request, purpose in zip(requests, purposes, strict=True)
    ]
    results = combine_results(examinations)
    if warnings := [result for result in results if result.level is Level.WARNING]:
        tell(render(warnings))
    refuse(results)
    return [
        ReadyBenchmark(purpose, examination.request, examination.cluster)
        for purpose, examination in zip(purposes, examinations, strict=True)
        if examination.request
    ]


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
