"""Every NVIDIA setting, resolved by the CUDA build of vLLM for its own platform; a stub of NVML describes the GPUs."""

from pathlib import Path

import pytest
from gpu_settings import Case, all_cases
from stubbed_gpus import PYTHON, environment

from harness_llm.config.engine_facts import resolve_facts
from harness_llm.pipeline.engine_settings.resolution import Candidate, Resolution, run_vllm

pytestmark = pytest.mark.gpu_rehearsal

CASES = [case for case in all_cases() if case.gpu.platform == "cuda"]


def by_cuda_build(candidates: list[Candidate], case: Case, libraries: Path) -> list[Resolution]:
    return run_vllm(candidates, environment(case.gpu, libraries), str(PYTHON))


@pytest.fixture(scope="session")
def resolutions(libraries: Path) -> dict[str, Resolution]:
    """One process of vLLM for each kind of GPU."""
    found: dict[str, Resolution] = {}
    for kind in dict.fromkeys(case.gpu.name for case in CASES):
        own = [case for case in CASES if case.gpu.name == kind]
        results = by_cuda_build([case.candidate for case in own], own[0], libraries)
        found |= dict(zip(map(str, own), results, strict=True))
    return found


def needs_a_driver(case: Case) -> bool:
    """MLA on compute capability 10.x: vLLM initializes CUDA when it resolves the settings."""
    return case.gpu.architecture.startswith("sm_10") and "kv_lora_rank" in case.config


@pytest.mark.parametrize("case", [case for case in CASES if needs_a_driver(case)], ids=str)
def test_latent_attention_on_blackwell_reaches_the_driver(case: Case, resolutions: dict[str, Resolution]) -> None:
    (violation,) = resolutions[str(case)].violations
    assert violation.found.startswith("Found no NVIDIA driver on your system")


@pytest.mark.parametrize("case", [case for case in CASES if not needs_a_driver(case)], ids=str)
def test_cuda_build_accepts_the_settings(case: Case, resolutions: dict[str, Resolution]) -> None:
    resolution = resolutions[str(case)]
    assert resolution.violations == []
    facts = resolve_facts(case.config, case.engine.llm_config, case.gpu)
    assert (resolution.platform, resolution.dtype, resolution.kv_cache_dtype) == (
        "cuda",
        facts.dtype,
        facts.kv_cache_dtype,
    )
    assert resolution.attention_backend
    print(f"{case}: {resolution.attention_backend}")  # noqa: T201 - a table of backends, with -rP


def test_settings_that_only_a_kernel_refuses_are_backend_rules(libraries: Path) -> None:
    """The boundary: vLLM resolves float16 with an FP8 KV cache on Hopper; FlashAttention 3 refuses its first call."""
    case = next(case for case in CASES if str(case) == "llama2-70b h100 Offline")
    llm_config = case.engine.llm_config | {"dtype": "float16"}
    changed = Candidate(config=case.config, llm_config=llm_config, env={}, platform="cuda")
    (resolution,) = by_cuda_build([changed], case, libraries)
    assert (resolution.violations, resolution.dtype, resolution.attention_backend) == ([], "float16", "FLASH_ATTN")


def test_argument_that_vllm_refuses_is_named(libraries: Path) -> None:
    case = next(case for case in CASES if str(case) == "llama2-70b h100 Offline")
    llm_config = case.engine.llm_config | {"max_num_seqs": -1}
    changed = Candidate(config=case.config, llm_config=llm_config, env={}, platform="cuda")
    (resolution,) = by_cuda_build([changed], case, libraries)
    assert "max_num_seqs" in [violation.argument for violation in resolution.violations]
