"""Check the engine settings of every scenario of a request."""

import difflib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness_llm.config.benchmark import Benchmark
from harness_llm.config.commands import engine_setting
from harness_llm.config.engine_arguments import engine_variables
from harness_llm.config.engine_config import EngineConfig
from harness_llm.config.engine_facts import FP8_CACHES, resolve_facts
from harness_llm.config.request import Request
from harness_llm.errors import ConfigError
from harness_llm.hardware.gpus import NO_ACCELERATOR, Gpu, load_gpus
from harness_llm.paths import Workspace, installed_by
from harness_llm.pipeline.doctor.check_result import CheckResult, Level, not_checked, passed, warned
from harness_llm.pipeline.engine_settings.backend_rules import broken_rules
from harness_llm.pipeline.engine_settings.capacity import GIB, cache_bytes, sequence_bytes
from harness_llm.pipeline.engine_settings.resolution import Candidate, Resolution, resolve_candidates, vllm_installed
from harness_llm.prepare.quantize.quantization_config import written_config
from harness_llm.prepare.quantize.recipes import load_recipes

RULES, BY_VLLM = "Engine settings", "Engine settings, vLLM"
_SIMILAR = 0.8  # ratio of difflib for a misspelt name
Found = tuple[str, CheckResult]
"""A scenario, and a result whose `where` is a key of its settings."""


def check_rules(request: Request) -> list[CheckResult]:
    """Check all scenarios by backend rules, estimated KV cache capacity and names of variables; does not start vLLM."""
    config, gpu = _config(request), gpu_facts(request.options.gpu, load_gpus(request.workspace))
    if config is None or gpu is None or not request.scenarios:
        return []
    found = [
        (plan.scenario, result)
        for plan in request.scenarios
        for result in scenario_results(plan.config, config, gpu, request.benchmark)
    ]
    return _joined(found) or [passed(RULES, f"no known rule of backends is broken on {gpu.name}")]


def check_by_vllm(request: Request) -> list[CheckResult]:
    """Check the engine arguments of all scenarios with vLLM's own resolution, in a separate process.

    Takes some seconds; results are cached. Skipped without an accelerator, where the engine starts as fast.

    Raises:
        EnvironmentMissing: vLLM is installed and cannot be imported.
    """
    config, gpu = _config(request), gpu_facts(request.options.gpu, load_gpus(request.workspace))
    if config is None or gpu is None or not request.scenarios:
        return []
    if not vllm_installed():
        return [not_checked(BY_VLLM, "vLLM is not installed here", hint=installed_by("setup"))]
    engines = [_without_missing_head(plan.config) for plan in request.scenarios]
    candidates = [candidate(engine, config, gpu) for engine in engines]
    resolutions = resolve_candidates(candidates, request.workspace.cache)
    found = [
        (plan.scenario, result)
        for plan, engine, resolution in zip(request.scenarios, engines, resolutions, strict=True)
        for result in (*_refusals(resolution), *_unchecked(plan.config, engine))
    ]
    return _joined(found) or [passed(BY_VLLM, "; ".join(dict.fromkeys(map(_summary, resolutions))))]


def _config(request: Request) -> dict[str, Any] | None:
    """config.json of the served checkpoint; None if it is unknown or vLLM does not serve it on an accelerator."""
    if request.options.engine != "vllm" or request.options.gpu == NO_ACCELERATOR:
        return None
    return served_config(request.benchmark, request.options.gpu, request.workspace)


def served_config(benchmark: Benchmark, gpu: str, workspace: Workspace) -> dict[str, Any] | None:
    """config.json of the checkpoint that vLLM will load; None if it is unknown.

    Before the checkpoint exists, it is the published config.json with the `quantization_config` of the default recipe
    for `gpu`.
    """
    checkpoint = benchmark.checkpoint
    file = workspace.models / checkpoint.quantized / "config.json"
    if file.is_file():
        found: dict[str, Any] = json.loads(file.read_text())
        return found
    if not checkpoint.config:
        return None
    config: dict[str, Any] = json.loads((workspace.benchmarks / checkpoint.config).read_text())
    if checkpoint.quantized == checkpoint.original:
        return config
    recipes = load_recipes(benchmark, workspace)
    if gpu not in recipes.accelerators:
        return None
    written = written_config(recipes.choose("", gpu))
    return config | {"quantization_config": written} if written else None


def gpu_facts(name: str, gpus: dict[str, Gpu]) -> Gpu | None:
    """Facts of GPU_NAME; the name of several nodes, such as h100x16, has the facts of its GPU."""
    return gpus.get(name) or gpus.get(name.partition("x")[0])


def candidate(engine: EngineConfig, config: dict[str, Any], gpu: Gpu) -> Candidate:
    """Settings of one scenario for vLLM to resolve."""
    return Candidate(config=config, llm_config=engine.llm_config, env=engine.env_config, platform=gpu.platform)


def _without_missing_head(engine: EngineConfig) -> EngineConfig:
    """Remove speculative decoding if its draft head is not downloaded; vLLM would try to download it."""
    head = (engine.llm_config.get("speculative_config") or {}).get("model", "")
    if not head or Path(head, "config.json").is_file():
        return engine
    others = {name: value for name, value in engine.llm_config.items() if name != "speculative_config"}
    return engine.model_copy(update={"llm_config": others})


def _unchecked(wanted: EngineConfig, checked: EngineConfig) -> Iterator[CheckResult]:
    if wanted != checked:
        result = not_checked(BY_VLLM, "speculative decoding, until its draft head is downloaded")
        yield replace(result, where="llm_config.speculative_config")


def scenario_results(
    engine: EngineConfig, config: dict[str, Any], gpu: Gpu, benchmark: Benchmark
) -> Iterator[CheckResult]:
    """Check the settings of one scenario by the backend rules and the KV cache capacity."""
    for rule in broken_rules(resolve_facts(config, engine.llm_config, gpu)):
        level, code = Level(rule.level), ConfigError.exit_code
        yield CheckResult(RULES, level, rule.found, rule.expected, rule.name, engine_setting(*rule.setting), code)
    yield from _capacity(engine, config, gpu, benchmark)
    yield from _unread_variables(engine)


def _capacity(engine: EngineConfig, config: dict[str, Any], gpu: Gpu, benchmark: Benchmark) -> Iterator[CheckResult]:
    """Check that the weights fit, and that the KV cache holds `max_num_seqs` sequences of mean length."""
    arguments = engine.llm_config
    left, cache = cache_bytes(config, arguments, gpu.memory_gb), resolve_facts(config, arguments, gpu).kv_cache_dtype
    if left <= 0:
        yield CheckResult(
            RULES,
            Level.ERROR,
            f"the weights leave no memory for the KV cache: {left / GIB:.0f} GiB of each {gpu.name}",
            expected="more GPUs for each replica, or smaller weights",
            where="llm_config.tensor_parallel_size",
            hint=engine_setting("llm_config.tensor_parallel_size", 2 * engine.group),
            exit_code=ConfigError.exit_code,
        )
    elif tokens := benchmark.dataset.mean_tokens:
        size = sequence_bytes(config, arguments, tokens, 1 if cache in FP8_CACHES else 2)
        held, wanted = int(left / size), int(arguments["max_num_seqs"])
        if wanted > held:
            yield warned(
                RULES,
                f"max_num_seqs is {wanted}; the KV cache holds an estimated {held} sequences of {tokens:.0f} tokens",
                expected=f"<= {held}; vLLM preempts and recomputes sequences that do not fit",
                where="llm_config.max_num_seqs",
                hint=engine_setting("llm_config.max_num_seqs", held),
            )


def _unread_variables(engine: EngineConfig) -> Iterator[CheckResult]:
    known = engine_variables()
    for name in engine.env_config if known else ():
        if name.startswith("VLLM_") and name not in known:
            similar = difflib.get_close_matches(name, known, n=1, cutoff=_SIMILAR)
            yield warned(
                RULES,
                f"{name} is not in vllm/envs.py of the installed vLLM: check its spelling",  # other modules read a few
                where=f"env_config.{name}",
                hint=f"a similar variable is {similar[0]}" if similar else "",
            )


def _refusals(resolution: Resolution) -> Iterator[CheckResult]:
    for violation in resolution.violations:
        yield CheckResult(
            BY_VLLM,
            Level.ERROR,
            "vLLM rejects the engine arguments",
            expected=violation.expected,
            where=f"llm_config.{violation.argument}".rstrip("."),
            hint=f"change it: {engine_setting('llm_config.ARGUMENT', 'VALUE')}",
            exit_code=ConfigError.exit_code,
            observed=violation.found,
        )


def _summary(resolution: Resolution) -> str:
    if resolution.attention_backend:
        return f"{resolution.dtype}, KV cache {resolution.kv_cache_dtype}, {resolution.attention_backend}"
    return "arguments accepted; vLLM chooses backends on a node with the GPU"


def _joined(found: Iterable[Found]) -> list[CheckResult]:
    """Merge equal results of scenarios; `where` lists the scenarios."""
    scenarios: dict[CheckResult, list[str]] = {}
    for scenario, result in found:
        scenarios.setdefault(result, []).append(scenario)
    return [replace(result, where=f"{', '.join(names)}: {result.where}") for result, names in scenarios.items()]
