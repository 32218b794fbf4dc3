"""Checks of the installed software: LoadGen, the build of vLLM, and what scores the answers."""

from collections.abc import Iterator

from harness_llm.config.inference_checkout import checkout
from harness_llm.config.request import Request
from harness_llm.config.stand_in import NEEDS_MORE
from harness_llm.errors import HarnessError
from harness_llm.hardware.compilers import has_nvcc, missing_for_triton
from harness_llm.loadgen.versions import loadgen_version
from harness_llm.pipeline.doctor.check_result import CheckResult, failed, from_error, not_checked, passed, warned
from harness_llm.pipeline.doctor.vllm_build import computes_here, is_cpu_build, refuse_cpu_build
from harness_llm.pipeline.engine_settings.engine_checks import BY_VLLM, check_by_vllm
from harness_llm.prepare.preparation import preparation_of
from harness_llm.replicas.engines.cuda import torch_cuda
from harness_llm.runs.fingerprint import versions

_LOADGEN = "LoadGen"
_BUILD = "vLLM build"
_COMPILERS = "Compilers"
_SCORING = "Scoring"
_OFFICIAL = "Official scripts"
_PERFORMANCE = "performance"


def check_loadgen(request: Request) -> CheckResult:
    """Check that the LoadGen of the round is installed."""
    try:
        return passed(_LOADGEN, loadgen_version(request.round))
    except HarnessError as error:
        return from_error(_LOADGEN, error)


def check_vllm_build(request: Request) -> Iterator[CheckResult]:
    """Check that an engine of this environment can use the accelerators; nothing to check for other engines."""
    options, packages = request.options, versions()
    configs = [plan.config for plan in request.scenarios if computes_here(options.engine, plan.config)]
    if not configs:
        return
    try:
        for config in configs:
            refuse_cpu_build(options.gpu, options.engine, config, packages)
    except HarnessError as error:
        yield from_error(_BUILD, error)
    else:
        yield passed(_BUILD, ", ".join(f"{name} {version}" for name, version in packages.items()))


def check_engine_arguments(request: Request, *, usable: bool) -> list[CheckResult]:
    """Check the engine arguments by vLLM's own resolution, where its build for the accelerators is installed.

    Args:
        usable: whether this machine has accelerators, and their checks found no error; vLLM asks the driver.
    """
    if is_cpu_build(versions()):  # check_vllm_build refuses it
        return []
    if not usable:
        return [not_checked(BY_VLLM, "vLLM needs usable accelerators for it")]
    try:
        return check_by_vllm(request)
    except HarnessError as error:
        return [from_error(BY_VLLM, error)]


def check_compilers(request: Request) -> Iterator[CheckResult]:
    """Check the compilers that the kernels of the CUDA build need; nothing to check for other builds."""
    engine = request.options.engine
    if torch_cuda() is None or not any(computes_here(engine, plan.config) for plan in request.scenarios):
        return
    if missing := missing_for_triton():
        packages = " ".join(missing)
        hint = f"apt install {packages}, or the like"
        yield failed(_COMPILERS, f"{packages} not installed", expected="what Triton compiles with", hint=hint)
    elif not has_nvcc():
        yield warned(
            _COMPILERS,
            "nvcc is not installed, so vLLM uses no kernel of FlashInfer or DeepGEMM that it would compile",
            expected="nvcc of the CUDA Toolkit 13 on PATH",
            hint="install NVIDIA's package cuda-toolkit-13-0, and export PATH=/usr/local/cuda/bin:$PATH",
        )
    else:
        yield passed(_COMPILERS, "a C compiler, Python.h and nvcc")


def check_scoring(request: Request) -> Iterator[CheckResult]:
    """Check that the answers of accuracy and compliance runs can be scored; takes seconds where graders are loaded."""
    if set(request.requested_tests) <= {_PERFORMANCE}:
        return
    methods = sorted(set(request.benchmark.accuracy.scoring.values()))
    if not set(methods) & set(NEEDS_MORE):
        yield passed(_SCORING, ", ".join(methods))
        return
    from harness_llm.evaluate.run_result import Scorer  # noqa: PLC0415 - loads nltk

    preparation = preparation_of(request.benchmark, request.workspace, request.samples("accuracy"))
    try:
        Scorer(request.benchmark, request.variants, preparation.assets).require()
        yield passed(_SCORING, ", ".join(methods))
    except HarnessError as error:
        yield from_error(_SCORING, error)


def check_official_scripts(request: Request) -> Iterator[CheckResult]:
    """Check that the reference's accuracy script can score the answers; takes seconds where there is a checkout of it.

    Without it harness-llm's own accuracy.txt is packaged, which a reviewer may object to; so it is a warning.
    """
    at_hand = checkout(request.workspace) is not None
    if set(request.requested_tests) <= {_PERFORMANCE} or not (at_hand or request.options.division == "closed"):
        return
    from harness_llm.evaluate.official_accuracy import require_script  # noqa: PLC0415 - loads nltk

    try:
        yield passed(_OFFICIAL, require_script(request.benchmark))
    except HarnessError as error:
        found = f"harness-llm's own accuracy.txt would be packaged: {error.what}"
        yield warned(_OFFICIAL, found, expected="that of the reference's script", where=error.where, hint=error.hint)
