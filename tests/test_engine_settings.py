"""Every shipped setting against the rules of backends, the KV cache's capacity and vLLM's own configuration."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from asked import options
from full_disk import errno_on_full_disk
from gpu_settings import GPUS, HERE, Case, all_cases

from harness_llm.config.engine_facts import resolve_facts, weight_bits
from harness_llm.config.model_shape import model_dtype, read_shape
from harness_llm.config.plan import resolve
from harness_llm.pipeline.doctor.check_result import CheckResult, Level
from harness_llm.pipeline.engine_settings import resolution
from harness_llm.pipeline.engine_settings.backend_rules import broken_rules, load_rules
from harness_llm.pipeline.engine_settings.capacity import cache_bytes, sequence_bytes
from harness_llm.pipeline.engine_settings.engine_checks import check_by_vllm, check_rules, scenario_results
from harness_llm.pipeline.engine_settings.resolution import Resolution, resolve_candidates

CASES = all_cases()
IDS = [str(case) for case in CASES]
# Parameters as published: model cards and papers, in billions.
PARAMETERS = {
    "llama2-70b": 68.98,
    "llama3.1-405b": 405.85,
    "llama3.1-8b": 8.03,
    "mixtral-8x7b": 46.70,
    "deepseek-r1": 671,
    "gpt-oss-120b": 116.8,
    "gptj": 6.05,
}


def published(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((HERE.benchmarks / name / "config.json").read_text())
    return config


def results(case: Case, **changes: Any) -> list[CheckResult]:
    engine = case.engine
    engine = engine.model_copy(update={"llm_config": engine.llm_config | changes})
    return list(scenario_results(engine, case.config, case.gpu, case.benchmark))


def find(benchmark: str, gpu: str, scenario: str = "Offline") -> Case:
    return next(case for case in CASES if str(case) == f"{benchmark} {gpu} {scenario}")


@pytest.mark.parametrize("name", PARAMETERS)
def test_model_shape_gives_the_published_parameter_count(name: str) -> None:
    shape = read_shape(published(name))
    assert (shape.quantized_weights + shape.other_weights) / 1e9 == pytest.approx(PARAMETERS[name], rel=0.002)


def test_published_dtype_decides_the_attention_kernel() -> None:
    assert model_dtype(published("llama2-70b")) == "float16"
    assert {model_dtype(published(name)) for name in PARAMETERS if name != "llama2-70b"} == {"bfloat16"}


def test_every_benchmark_of_a_round_has_settings_to_check() -> None:
    assert {case.benchmark.name for case in CASES} >= set(PARAMETERS)
    assert {case.gpu.name for case in CASES} == {gpu.name for gpu in GPUS.values()}


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_shipped_settings_break_no_rule_and_leave_memory_for_the_cache(case: Case) -> None:
    assert [result for result in results(case) if result.level is Level.ERROR] == []


# Published with this vLLM argument, GPU and cache; arrivals limit the batch of Server and Interactive.
PUBLISHED_BEYOND_THE_CACHE = {
    "gpt-oss-120b b200 Server",
    "gpt-oss-120b h200 Server",
    "llama2-70b mi325x Interactive",
    "llama2-70b mi350x Interactive",
    "llama2-70b mi350x Offline",
    "llama2-70b mi355x Interactive",
    "llama2-70b mi355x Offline",
    "llama2-70b-interactive mi325x Server",
    "llama2-70b-interactive mi350x Offline",
    "llama2-70b-interactive mi350x Server",
    "llama2-70b-interactive mi355x Offline",
    "llama2-70b-interactive mi355x Server",
    "llama3.1-8b mi355x Offline",
}


def test_shipped_batches_fit_the_cache_unless_published() -> None:
    over = {str(case) for case in CASES for result in results(case) if "max_num_seqs" in result.where}
    assert over == PUBLISHED_BEYOND_THE_CACHE


def test_batch_beyond_the_cache_is_found_for_every_benchmark_of_vllm() -> None:
    of_vllm = {str(case): case for case in CASES if case.benchmark.engine == "vllm"}
    silent = [name for name, case in of_vllm.items() if not results(case, max_num_seqs=60_000)]
    assert silent == []


@pytest.fixture(scope="module")
def resolutions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Resolution]:
    """All cases, resolved by one process of the installed vLLM."""
    found = resolve_candidates([case.candidate for case in CASES], tmp_path_factory.mktemp("cache"))
    return dict(zip(IDS, found, strict=True))


def test_result_that_a_full_disk_cuts_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Resolution(platform="none", dtype="bfloat16")
    monkeypatch.setattr(resolution, "run_vllm", lambda candidates, _: [found] * len(candidates))
    candidates = [CASES[0].candidate]
    assert errno_on_full_disk(10, lambda: resolve_candidates(candidates, tmp_path)) == errno.EFBIG
    assert resolve_candidates(candidates, tmp_path) == [found]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_installed_vllm_accepts_the_shipped_settings(case: Case, resolutions: dict[str, Resolution]) -> None:
    resolution, llm_config = resolutions[str(case)], case.engine.llm_config
    assert resolution.violations == []
    facts = resolve_facts(case.config, llm_config, case.gpu)
    assert (resolution.dtype, resolution.kv_cache_dtype) == (facts.dtype, facts.kv_cache_dtype)


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_fp8_cache_with_float16_is_an_error_on_hopper(gpu: str) -> None:
    (error,) = [r for r in results(find("llama2-70b", gpu), dtype="auto") if r.level is Level.ERROR]
    assert error.exit_code == 2
    assert error.hint == "--set llm_config.dtype=bfloat16"
    assert not [r for r in results(find("llama2-70b", gpu), dtype="bfloat16") if r.level is Level.ERROR]
    assert not [r for r in results(find("llama2-70b", gpu), kv_cache_dtype="bfloat16") if r.level is Level.ERROR]


def test_every_backend_rule_matches_some_settings() -> None:
    case = find("llama2-70b", "h100")
    facts = resolve_facts(case.config, case.engine.llm_config, case.gpu)
    for rule in load_rules():
        changed = {name: values[0] for name, values in rule.when.items()}
        assert rule in broken_rules(facts.__class__(**{**facts.__dict__, **changed})), rule.name
        assert rule.source.startswith("vllm/"), rule.name


def test_checkpoint_with_cache_scales_has_an_fp8_cache() -> None:
    case = find("llama2-70b", "h100")
    assert resolve_facts(case.config, {"kv_cache_dtype": "auto"}, case.gpu).kv_cache_dtype == "fp8"
    assert resolve_facts(published("llama2-70b"), {}, case.gpu).kv_cache_dtype == "auto"


def test_token_of_llama2_70b_takes_160_kib_in_fp8() -> None:
    """2 x 80 layers x 8 heads x 128."""
    config = published("llama2-70b")
    assert sequence_bytes(config, {}, 1, 1) == 163840
    assert sequence_bytes(config, {"tensor_parallel_size": 4}, 1, 1) == 163840 / 4
    assert sequence_bytes(config, {"tensor_parallel_size": 16}, 1, 1) == 163840 / 8  # eight heads, repeated


def test_latent_attention_cache_is_not_split_over_gpus() -> None:
    config = published("deepseek-r1")
    assert sequence_bytes(config, {"tensor_parallel_size": 8}, 1, 2) == 61 * 576 * 2


def test_half_of_the_layers_of_gpt_oss_cache_their_window_only() -> None:
    config, token = published("gpt-oss-120b"), 2 * 64 * 8 * 2
    assert sequence_bytes(config, {}, 1000, 2) == (18 * 1000 + 18 * 128) * token


def test_weight_memory_follows_from_the_format() -> None:
    assert weight_bits(find("llama2-70b", "h100").config) == 8
    assert weight_bits(published("gpt-oss-120b")) == 4.25
    assert weight_bits(find("llama2-70b", "b200").config) == 4.5  # NVFP4: a scale for 16 weights
    assert weight_bits(published("llama2-70b")) == 16
    memory = [cache_bytes(published("llama2-70b"), {"max_num_seqs": 1, "tensor_parallel_size": n}, 80) for n in (1, 8)]
    assert memory[0] < 0 < memory[1]


def test_more_sequences_than_the_cache_holds_are_a_warning_with_both_numbers() -> None:
    (warning,) = results(find("llama2-70b", "h200"), max_num_seqs=5000, dtype="bfloat16")
    assert warning.level is Level.WARNING
    assert "max_num_seqs is 5000" in warning.found
    held = int(warning.hint.partition("max_num_seqs=")[2])
    assert 500 < held < 1000
    assert f"an estimated {held} sequences" in warning.found
    assert not results(find("llama2-70b", "h200"), max_num_seqs=held // 2, dtype="bfloat16")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("VLLM_ROCM_USE_AITR", "a similar variable is VLLM_ROCM_USE_AITER"),
        ("VLLM_CPU_SIM_MULTI_NUMA", ""),  # read by vllm/utils/cpu_resource_utils.py
    ],
)
def test_variable_that_is_not_in_the_list_of_vllm_is_a_warning(name: str, hint: str) -> None:
    case = find("llama2-70b", "mi300x")
    env = {name: "1", "VLLM_ROCM_USE_AITER": "1", "HIP_FORCE_DEV_KERNARG": "1"}
    engine = case.engine.model_copy(update={"env_config": env})
    (warning,) = scenario_results(engine, case.config, case.gpu, case.benchmark)
    assert (warning.level, warning.where) == (Level.WARNING, f"env_config.{name}")
    assert warning.found == f"{name} is not in vllm/envs.py of the installed vLLM: check its spelling"
    assert warning.hint == hint


def test_weights_that_do_not_fit_are_an_error() -> None:
    found = results(find("llama3.1-405b", "h200"), tensor_parallel_size=1)
    assert [r.where for r in found if r.level is Level.ERROR] == ["llm_config.tensor_parallel_size"]


@pytest.mark.slow
def test_refusal_by_vllm_names_scenario_and_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More sequences than tokens in a step: no limit of one argument, so that vLLM alone sees it."""
    sets = ["llm_config.max_num_seqs=4096", "llm_config.max_num_batched_tokens=2048"]
    words = {"model": "llama2-70b", "gpu": "h100", "division": "open", "scenarios": "Offline", "set": sets}
    request = resolve(options(**words), HERE)
    monkeypatch.setattr("harness_llm.paths.Workspace.cache", property(lambda _: tmp_path))
    (error,) = check_by_vllm(request)
    assert (error.level, error.exit_code) == (Level.ERROR, 2)
    assert "max_num_batched_tokens (2048) must be greater than or equal to max_num_seqs (4096)" in error.expected
    assert error.where.startswith("Offline: llm_config")
    assert check_by_vllm(request) == [error]
    assert len(list(tmp_path.rglob("*.json"))) == 1


def test_rules_of_all_scenarios_are_joined() -> None:
    words = {"model": "llama2-70b", "gpu": "h100", "set": ["llm_config.dtype=float16"], "scenarios": "Offline,Server"}
    found = [result for result in check_rules(resolve(options(**words), HERE)) if result.level is Level.ERROR]
    assert [result.where for result in found] == ["Offline, Server: FP8 KV cache with float16"]


def test_engines_other_than_vllm_have_no_settings_check() -> None:
    request = resolve(options(model="gptj", gpu="h100", scenarios="Offline"), HERE)
    assert check_rules(request) == check_by_vllm(request) == []
