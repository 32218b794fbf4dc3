"""Checks of names, rules, LoadGen targets and engine settings."""

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec

from harness_llm.config.device_count import targets_file
from harness_llm.config.options import Choices, require_names
from harness_llm.config.request import Request, resolve, targets_of, understand
from harness_llm.errors import ConfigError, HarnessError
from harness_llm.paths import Workspace
from harness_llm.pipeline.doctor.check_result import CheckResult, failed, from_error, not_checked, passed, warned
from harness_llm.pipeline.doctor.purpose import Purpose

_NAMES = "Names"
_SETTINGS = "Settings"


def resolve_settings(
    choices: Choices, workspace: Workspace, *, in_image: bool = False
) -> tuple[Request | None, list[CheckResult]]:
    """Resolve the options and report the errors of all scenarios.

    The request has no scenarios if their settings have errors, and is None if the benchmark does not exist.

    Args:
        in_image: whether vLLM, which defines the engine arguments, may be installed only in an image.
    """
    try:
        request = resolve(choices, workspace)
        return request, [passed(_SETTINGS, f"{choices.model} on {choices.gpu}: {', '.join(choices.scenarios)}")]
    except HarnessError:
        pass
    try:
        request = understand(choices, workspace)
    except HarnessError as error:
        return None, [from_error(_SETTINGS, error)]
    if in_image and not find_spec("vllm"):
        return request, list(_without_vllm(choices, workspace))
    alone = [replace(choices, scenarios=(scenario,)) for scenario in choices.scenarios] or [choices]
    return request, list(dict.fromkeys(result for one in alone for result in _scenario(one, workspace)))


def _without_vllm(choices: Choices, workspace: Workspace) -> Iterator[CheckResult]:
    """Check the settings that do not depend on vLLM."""
    yield not_checked(_SETTINGS, "engine arguments, which require the vLLM of the image")
    try:
        file = choices.user_conf or targets_file(targets_of(choices), choices.gpu_count, workspace)
        yield passed("Targets", str(file)) if file.is_file() else failed("Targets", "no such file", where=str(file))
    except HarnessError as error:
        yield from_error("Targets", error)


def _scenario(choices: Choices, workspace: Workspace) -> Iterator[CheckResult]:
    try:
        resolve(choices, workspace)
    except HarnessError as error:
        yield from_error(_SETTINGS, error)


def check_names(choices: Choices, purpose: Purpose) -> CheckResult:
    """Check that the names of submitter and system are set."""
    try:
        require_names(choices, company=purpose is Purpose.SUBMIT)
    except HarnessError as error:
        return from_error(_NAMES, error)
    return passed(_NAMES, ", ".join(name for name in (choices.submitter, choices.system) if name))


def check_engine(request: Request, purpose: Purpose) -> Iterator[CheckResult]:
    """Check that runs of the engine can be packaged with the profile."""
    if purpose is not Purpose.SUBMIT:
        return
    try:
        request.profile.check_engine(request.choices.engine)
    except HarnessError as error:
        yield from_error("Engine", error)


def check_acceptance(request: Request) -> Iterator[CheckResult]:
    """Warn of scenarios whose results the official checker always rejects."""
    division, asked = request.choices.division, request.choices.scenarios
    for refusal in request.rules.never_accepted:
        scenarios = [scenario for scenario in refusal.scenarios if scenario in asked]
        if division in refusal.divisions and scenarios:
            yield warned(
                "Official checker",
                f"always rejects {request.benchmark.name} {', '.join(scenarios)}, {division}: {refusal.reason}",
                hint=refusal.hint,
            )


def check_inferred(request: Request) -> Iterator[CheckResult]:
    """Warn that an inferred result uses the rate of its source scenario."""
    for target, source in request.choices.inferred:
        yield warned(
            "Inferred results",
            f"{target} is inferred from {source}: the official checker uses the queries/s of {source}, one at a time",
            hint=f"--scenarios {','.join((*request.choices.scenarios, target))} measures {target}",
        )


def check_nodes(request: Request) -> Iterator[CheckResult]:
    """Check that a configuration whose replicas span nodes has a Ray cluster."""
    if request.choices.ray or not any(plan.config.over_nodes for plan in request.scenarios):
        return
    error = ConfigError(
        f"missing Ray cluster: the replicas of {request.benchmark.name} span several nodes",
        where="llm_config.distributed_executor_backend: ray",
        hint="--ray HEAD:6379, or RAY_ADDRESS; docs/cluster.md",
    )
    yield from_error("Ray cluster", error)
