"""Checks of the installed software: LoadGen, vLLM, compilers, scoring and official scripts."""

from collections.abc import Iterator

from harness_llm.config.inference_checkout import checkout
from harness_llm.config.request import Request
from harness_llm.config.stand_in import NEEDS_MORE
from harness_llm.errors import HarnessError
from harness_llm.evaluate.sentence_splitter import require_own, splitter_folder
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
SCORING = "Scoring"
OFFICIAL = "Official scripts"
_PERFORMANCE = "performance"


def scores_answers(request: Request) -> bool:
    """Return whether a requested test needs its answers scored."""
    return not set(request.requested_tests) <= {_PERFORMANCE}


def check_loadgen(request: Request) -> CheckResult:
    """Check that the LoadGen of the round is installed."""
    try:
        return passed(_LOADGEN, loadgen_version(request.round))
    except HarnessError as error:
        return from_error(_LOADGEN, error)


def check_vllm_build(request: Request) -> Iterator[CheckResult]:
    """Check that the vLLM build of this environment can use the accelerators; skipped for other engines."""
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
    """Check the engine arguments with vLLM, if its build for the accelerators is installed.

    Args:
        usable: whether this machine has accelerators whose checks passed; vLLM queries the driver.
    """
    if is_cpu_build(versions()):  # check_vllm_build reports this error
        return []
    if not usable:
        return [not_checked(BY_VLLM, "no usable accelerators, which vLLM requires")]
    try:
        return check_by_vllm(request)
    except HarnessError as error:
        return [from_error(BY_VLLM, error)]


def check_compilers(request: Request) -> Iterator[CheckResult]:
    """Check the compilers that kernels of the CUDA build require; skipped for other builds."""
    engine = request.options.engine
    if torch_cuda() is None or not any(computes_here(engine, plan.config) for plan in request.scenarios):
        return
    if missing := missing_for_triton():
        packages = " ".join(missing)
        hint = f"apt install {packages}, or the packages of this distribution"
        yield failed(_COMPILERS, f"{packages} not installed", expected="the compiler of Triton", hint=hint)
    elif not has_nvcc():
        yield warned(
            _COMPILERS,
            "nvcc is not installed: vLLM cannot use kernels of FlashInfer and DeepGEMM that need compiling",
            expected="nvcc of the CUDA Toolkit 13 on PATH",
            hint="install NVIDIA's package cuda-toolkit-13-0, and export PATH=/usr/local/cuda/bin:$PATH",
        )
    else:
        yield passed(_COMPILERS, "a C compiler, Python.h and nvcc")


def check_scoring(request: Request) -> Iterator[CheckResult]:
    """Check that answers of accuracy and compliance runs can be scored; takes seconds with official scripts."""
    if not scores_answers(request):
        return
    methods = sorted(set(request.benchmark.accuracy.scoring.values()))
    try:
        if request.benchmark.accuracy.sentence_split:
            require_own(splitter_folder(request.workspace))
        if set(methods) & set(NEEDS_MORE):
            from harness_llm.evaluate.run_result import Scorer  # noqa: PLC0415 - loads nltk

            preparation = preparation_of(request.benchmark, request.workspace, request.samples("accuracy"))
            Scorer(request.benchmark, request.variants, preparation.assets).require()
        yield passed(SCORING, ", ".join(methods))
    except HarnessError as error:
        yield from_error(SCORING, error)


def check_official_scripts(request: Request) -> Iterator[CheckResult]:
    """Warn if the official accuracy script cannot score the answers; takes seconds with a checkout.

    Without the script, the accuracy.txt of harness-llm is packaged, to which a reviewer may object.
    """
    has_checkout = checkout(request.workspace) is not None
    if not scores_answers(request) or not (has_checkout or request.options.division == "closed"):
        return
    from harness_llm.evaluate.official.accuracy_script import require_script  # noqa: PLC0415 - loads nltk

    try:
        yield passed(OFFICIAL, require_script(request.benchmark))
    except HarnessError as error:
        found = f"accuracy.txt would be computed by harness-llm: {error.what}"
        yield warned(OFFICIAL, found, expected="output of the official script", where=error.where, hint=error.hint)
