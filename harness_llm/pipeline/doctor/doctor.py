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
from harness_llm.pipeline.doctor.check_result import CheckResult, errors, from_error
from harness_llm.pipeline.doctor.disk_space import check_space, required_bytes
from harness_llm.pipeline.doctor.doctor_report import error_type, render, require, summary, to_json
from harness_llm.pipeline.doctor.download_checks import check_downloads
from harness_llm.pipeline.doctor.examination import Examination, Tell, examine
from harness_llm.pipeline.doctor.folder_checks import check_folders
from harness_llm.pipeline.doctor.purpose import Part, Purpose
from harness_llm.write_access import existing_part, write_error

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
    return show(combine_results(examinations, _tell), as_json=as_json)


def show(results: Sequence[CheckResult], *, as_json: bool) -> int:
    """Print `results` and their number; return the exit code of their errors, else 0."""
    text = json.dumps(to_json(results), indent=2) if as_json else f"{render(results)}\n\n{summary(results)}"
    sys.stdout.write(f"{text}\n")
    found = errors(results)
    return error_type(found).exit_code if found else 0


def _examine(request: Request, purpose: Purpose, part: Part, tell: Tell) -> Examination:
    """Examine one benchmark; an error of a check keeps the results of the other benchmarks."""
    try:
        return examine(request, purpose, part=part, tell=tell)
    except (HarnessError, OSError) as error:
        return Examination([from_error(request.benchmark.name, error)], None, None)


def combine_results(examinations: Sequence[Examination], tell: Tell = lambda _: None) -> list[CheckResult]:
    """Combine the results of several benchmarks; equal results appear once, needs are checked together."""
    results = dict.fromkeys(result for examination in examinations for result in examination.results)
    needs = [examination.needs for examination in examinations]
    required = required_bytes(space for need in needs for space in need.space)
    return [
        *results,
        *check_downloads((source for need in needs for source in need.sources), tell),
        *check_folders(place for need in needs for place in need.places),
        # A folder without write access, which has been reported, may be on a full disk or on none.
        *check_space({folder: size for folder, size in required.items() if not write_error(existing_part(folder))}),
    ]


@dataclass(frozen=True)
class ReadyBenchmark:
    """A benchmark without failed checks: what the command does with it, and its cluster."""

    purpose: Purpose
    request: Request
    cluster: "Cluster | None"


def require_checks(
    requests: Sequence[Request], purpose_of: Callable[[Request], Purpose], tell: Tell
) -> list[ReadyBenchmark]:
    """Check all benchmarks; raise one error for all failed checks, and print the other problems through `tell`.

    Raises:
        ConfigError: all failed checks are configuration errors.
        EnvironmentMissing: at least one failed check is not a configuration error.
    """
    purposes = [purpose_of(request) for request in requests]
    examinations = [
        _examine(request, purpose, Part.ALL, tell) for request, purpose in zip(requests, purposes, strict=True)
    ]
    require(combine_results(examinations, tell), tell)
    return [
        ReadyBenchmark(purpose, examination.request, examination.cluster)
        for purpose, examination in zip(purposes, examinations, strict=True)
        if examination.request
    ]


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
