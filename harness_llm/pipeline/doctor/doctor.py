"""`harness-llm doctor`, and the same checks at the start of a submission."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness_llm.config.options import Choices
from harness_llm.config.profile import load_profile
from harness_llm.config.request import Request
from harness_llm.errors import EnvironmentMissing, HarnessError
from harness_llm.paths import Workspace
from harness_llm.pipeline.doctor.check_result import CheckResult, Level, errors, from_error
from harness_llm.pipeline.doctor.doctor_report import refuse, render, to_json
from harness_llm.pipeline.doctor.examination import Examination, Tell, examine
from harness_llm.pipeline.doctor.purpose import Part, Purpose

if TYPE_CHECKING:
    from harness_llm.replicas.ray.cluster import Cluster


def purpose_of(choices: Choices, *, packed: bool) -> Purpose:
    """Purpose of `harness-llm submit` with these options; `packed` is its option --package."""
    return Purpose.SUBMIT if packed and load_profile(choices.profile, Workspace()).packaged else Purpose.MEASURE


def doctor(choose: Callable[[], Sequence[Choices]], *, packed: bool, part: Part, as_json: bool) -> int:
    """Run all checks, print their results and return the exit code.

    Args:
        choose: returns the options of each benchmark, or raises HarnessError.
        packed: whether the results will be packaged, as for `submit`.
        part: which checks to run.
        as_json: print one JSON document.
    """
    try:
        passes = [examine(one, purpose_of(one, packed=packed), part=part, tell=_tell) for one in choose()]
        results = together(passes)
    except HarnessError as error:
        results = [from_error("Options", error)]
    return show(results, as_json=as_json)


def show(results: Sequence[CheckResult], *, as_json: bool) -> int:
    """Print `results`; return 3 if one of them is an error, else 0."""
    text = json.dumps(to_json(results), indent=2) if as_json else render(results)
    sys.stdout.write(f"{text}\n")
    return EnvironmentMissing.exit_code if errors(results) else 0


def together(passes: Sequence[Examination]) -> list[CheckResult]:
    """Combine the results of several benchmarks; equal results appear once."""
    return list(dict.fromkeys(result for one in passes for result in one.results))


@dataclass(frozen=True)
class Ready:
    """One benchmark whose checks found no error."""

    purpose: Purpose
    request: Request
    cluster: "Cluster | None"


def require(chosen: Sequence[Choices], purpose: Callable[[Choices], Purpose], tell: Tell) -> list[Ready]:
    """Check all benchmarks, print warnings through `tell`, and raise if a check failed.

    Raises:
        ConfigError: all failed checks found a wrong configuration.
        EnvironmentMissing: another check failed.
    """
    purposes = [purpose(one) for one in chosen]
    passes = [examine(one, asked, tell=tell) for one, asked in zip(chosen, purposes, strict=True)]
    results = together(passes)
    if warnings := [result for result in results if result.level is Level.WARNING]:
        tell(render(warnings))
    refuse(results)
    found = zip(purposes, passes, strict=True)
    return [Ready(asked, one.request, one.cluster) for asked, one in found if one.request]


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
