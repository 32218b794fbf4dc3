"""Checks of names, rules, LoadGen targets and engine settings."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from harness_llm.config.commands import typed
from harness_llm.config.options import Options
from harness_llm.config.plan import check_accelerator, load_targets, plan_scenario, targets_path, with_plans
from harness_llm.config.request import Request, check_request, name_faults
from harness_llm.errors import ConfigError, HarnessError
from harness_llm.hardware.gpus import Gpu
from harness_llm.pipeline.doctor.check_result import CheckResult, failed, from_error, not_checked, passed, warned
from harness_llm.pipeline.doctor.purpose import Purpose
from harness_llm.pipeline.live.metrics import serve_metrics
from harness_llm.pipeline.live.state import LiveState
from harness_llm.replicas.placement import refuse_invalid_selection

_NAMES = "Names"
_SETTINGS = "Settings"


def resolve_settings(request: Request, *, in_image: bool = False) -> tuple[Request | None, list[CheckResult]]:
    """Plan the scenarios of `request`; returns None instead of a request with wrong options.

    A scenario with an error has no plan, and the others are planned.

    Args:
        in_image: whether vLLM, which defines the engine arguments, may be installed only in an image.
    """
    options = request.options
    try:
        check_accelerator(request)
        check_request(request)
    except HarnessError as error:
        return None, [from_error(_SETTINGS, error)]
    if in_image and not find_spec("vllm"):
        return request, list(_without_vllm(request))
    try:
        targets = load_targets(request)
    except HarnessError as error:
        return request, [from_error(_SETTINGS, error)]
    plans, faults = [], []
    for scenario in options.measured:
        try:
            plans.append(plan_scenario(scenario, request, targets))
        except HarnessError as error:
            faults.append(from_error(_SETTINGS, error))
    if faults:
        return request, list(dict.fromkeys(faults))
    return with_plans(request, plans), [
        passed(_SETTINGS, f"{options.model} on {options.gpu}: {', '.join(options.measured)}")
    ]


def _without_vllm(request: Request) -> Iterator[CheckResult]:
    """The checks of settings on a machine that has vLLM in an image only."""
    yield not_checked(_SETTINGS, "engine arguments, which require the vLLM of the image")
    try:
        file = targets_path(request)
        yield passed("Targets", str(file)) if file.is_file() else failed("Targets", "no such file", where=str(file))
    except HarnessError as error:
        yield from_error("Targets", error)


def check_names(options: Options, purpose: Purpose) -> Iterator[CheckResult]:
    """Check the names of submitter and system."""
    faults = list(name_faults(options, company=purpose is Purpose.SUBMIT))
    yield from (from_error(_NAMES, fault) for fault in faults)
    if not faults:
        yield passed(_NAMES, ", ".join(name for name in (options.company, options.system_name) if name))


def check_metrics_port(options: Options) -> Iterator[CheckResult]:
    """Check that the port for the metrics is free."""
    try:
        with serve_metrics(LiveState(), options.metrics_port):
            pass
    except HarnessError as error:
        yield from_error("Metrics port", error)


def check_engine(request: Request, purpose: Purpose) -> Iterator[CheckResult]:
    """Check that runs of the engine can be packaged with the profile."""
    if purpose is not Purpose.SUBMIT:
        return
    try:
        request.profile.check_engine(request.options.engine)
    except HarnessError as error:
        yield from_error("Engine", error)


def check_acceptance(request: Request) -> Iterator[CheckResult]:
    """Warn of scenarios whose results the official checker always rejects."""
    division, asked = request.options.division, request.options.measured
    for refusal in request.rules.never_accepted:
        scenarios = [scenario for scenario in refusal.scenarios if scenario in asked]
        others = tuple(name for name in asked if name not in scenarios)
        if division in refusal.divisions and scenarios:
            yield warned(
                "Official checker",
                f"always rejects {request.benchmark.name} {', '.join(scenarios)}, {division}: {refusal.reason}",
                hint=refusal.hint or (typed(scenarios=others) if others else ""),
            )


def check_inferred(request: Request) -> Iterator[CheckResult]:
    """Warn that an inferred result uses the rate of its source scenario."""
    for target, source in request.options.inferred:
        yield warned(
            "Inferred results",
            f"{target} is inferred from {source}: the official checker uses the queries/s of {source}, one at a time",
            hint=f"{typed(scenarios=(*request.options.measured, target))} measures {target}",
        )


def check_nodes(request: Request) -> Iterator[CheckResult]:
    """Check that a configuration whose replicas span nodes has a Ray cluster."""
    if request.options.ray or not any(plan.config.over_nodes for plan in request.scenarios):
        return
    error = ConfigError(
        f"missing Ray cluster: the replicas of {request.benchmark.name} span several nodes",
        where="llm_config.distributed_executor_backend: ray",
        hint=f"{typed(ray='HEAD:6379')}; docs/cluster.md",
    )
    yield from_error("Ray cluster", error)


def check_visible_devices(gpu: Gpu, environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check that the variables that select devices select some, and agree."""
    try:
        refuse_invalid_selection(gpu, environment)
    except HarnessError as error:
        yield from_error("Visible devices", error)
