"""`harness-llm doctor`, and the pass at the start of a submission."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness_llm.config.options import Options
from harness_llm.config.request import Request, load_requests
from harness_llm.errors import EnvironmentMissing, HarnessError
from harness_llm.paths import Workspace
from harness_llm.pipeline.doctor.check_result import CheckResult, Level, errors, from_error
from harness_llm.pipeline.doctor.doctor_report import refuse, render, to_json
from harness_llm.pipeline.doctor.examination import Examination, Tell, examine
from harness_llm.pipeline.doctor.purpose import Part, Purpose

if TYPE_CHECKING:
    from harness_llm.replicas.ray.cluster import Cluster


def purpose_of(request: Request) -> Purpose:
    """What `harness-llm submit` does with the options of `request`."""
    return Purpose.SUBMIT if request.options.package and request.profile.packaged else Purpose.MEASURE


def doctor(options: Options, *, part: Part, as_json: bool) -> int:
    """Print the result of every check; returns the exit code.

    Args:
        part: which checks are made.
        as_json: print one JSON document.
    """
    try:
        requests = load_requests(options, Workspace())
        results = together([examine(one, purpose_of(one), part=part, tell=_tell) for one in requests])
    except HarnessError as error:
        results = [from_error("Options", error)]
    return show(results, as_json=as_json)


def show(results: Sequence[CheckResult], *, as_json: bool) -> int:
    """Print `results`; returns 3 where one of them refuses a submission, else 0."""
    text = json.dumps(to_json(results), indent=2) if as_json else render(results)
    sys.stdout.write(f"{text}\n")
    return EnvironmentMissing.exit_code if errors(results) else 0


def together(passes: Sequence[Examination]) -> list[CheckResult]:
    """The results of several benchmarks, equal ones once."""
    return list(dict.fromkeys(result for one in passes for result in one.results))


@dataclass(frozen=True)
class Ready:
    """One benchmark whose checks found no error."""

    purpose: Purpose
    request: Request
    cluster: "Cluster | None"


def require(requests: Sequence[Request], purpose: Callable[[Request], Purpose], tell: Tell) -> list[Ready]:
    """Check all benchmarks, print warnings through `tell`, and refuse what cannot be submitted.

    Raises:
        ConfigError: a check failed, and every failed check found a wrong configuration.
        EnvironmentMissing: a check failed.
    """
    purposes = [purpose(request) for request in requests]
    passes = [examine(request, asked, tell=tell) for request, asked in zip(requests, purposes, strict=True)]
    results = together(passes)
    if warnings := [result for result in results if result.level is Level.WARNING]:
        tell(render(warnings))
    refuse(results)
    found = zip(purposes, passes, strict=True)
    return [Ready(asked, one.request, one.cluster) for asked, one in found if one.request]


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
