"""The benchmarks, engine settings and targets that come with the checkout: complete, and in line with the rules."""

import itertools
import re
from pathlib import Path

import pytest
from provenance import DOCUMENT, gpus_of, provenance_of, scenarios_of, with_table

from harness_llm.config.benchmark import Benchmark, benchmark_names, load_benchmark
from harness_llm.config.engine_arguments import engine_variables
from harness_llm.config.engine_config import EngineConfig, load_config
from harness_llm.config.plan import STAND_IN, loadgen_models
from harness_llm.config.rules import BenchmarkRules, load_round, round_names
from harness_llm.config.user_conf import UserConf, parse
from harness_llm.config.violations import rule_violations, violations
from harness_llm.hardware.gpus import NO_ACCELERATOR, load_gpus
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.prepare.datasets.sources import SOURCES

WORKSPACE = Workspace(CHECKOUT)
BENCHMARKS = {name: load_benchmark(name, WORKSPACE) for name in benchmark_names(WORKSPACE)}
PUBLISHED = {name: benchmark for name, benchmark in BENCHMARKS.items() if benchmark.preparer == "published"}
GPUS = load_gpus(WORKSPACE)
TWO_NODES = "x16"  # how a GPU_NAME ends whose settings span two nodes of 8
ONE_GPU = ("llama3.1-8b-edge",)
WEIGHTS_GB = {  # as served; FP8 is a byte a parameter, gpt-oss-120b MXFP4
    "llama2-70b": 70,
    "llama2-70b-interactive": 70,
    "llama3.1-405b": 405,
    "gptj": 6,
    "llama3.1-8b": 8,
    "llama3.1-8b-edge": 8,
    "mixtral-8x7b": 47,
    "deepseek-r1": 671,
    "gpt-oss-120b": 63,
}


def rules_of(benchmark: Benchmark) -> dict[tuple[str, str], BenchmarkRules]:
    """By round and variant."""
    every = {name: load_round(name).benchmarks for name in round_names()}
    return {(name, v): rules[v] for name, rules in every.items() for v in benchmark.variants if v in rules}


CELLS = [
    (name, scenario, gpu)
    for name, benchmark in BENCHMARKS.items()
    for gpu in sorted(gpus_of(benchmark))
    for scenario in sorted(scenarios_of(benchmark))
]


def config_of(name: str, scenario: str, gpu: str) -> EngineConfig:
    return load_config(BENCHMARKS[name], scenario, gpu, [], WORKSPACE)


def conf_of(gpu: str) -> UserConf:
    file = WORKSPACE.user_confs / f"user_{gpu}.conf"
    return parse(file.read_text(), file.name, loadgen_models())


def test_every_official_text_benchmark_has_a_folder() -> None:
    official = {variant for name in round_names() for variant in load_round(name).benchmarks}
    assert official == {variant for benchmark in PUBLISHED.values() for variant in benchmark.variants}


@pytest.mark.parametrize("name", PUBLISHED)
def test_benchmark_facts_equal_those_of_every_round(name: str) -> None:
    benchmark = PUBLISHED[name]
    assert benchmark.name == name
    for (round_, variant), rules in rules_of(benchmark).items():
        assert rule_violations(benchmark, rules) == [], (round_, variant)
        assert {*rules.gates, *rules.limits} <= set(benchmark.accuracy.metrics), (round_, variant)
        tests = load_round(round_).compliance
        for test in rules.compliance:
            needed = tests[test].audit["min_query_count"]
            assert benchmark.dataset.of(test).samples >= needed, test


@pytest.mark.parametrize("name", [name for name, benchmark in PUBLISHED.items() if len(benchmark.variants) > 1])
def test_variants_are_ordered_strictest_first(name: str) -> None:
    gates = [rules.gates for (round_, _), rules in rules_of(PUBLISHED[name]).items() if round_ == "v5.0"]
    assert len(gates) > 1
    for strict, lax in itertools.pairwise(gates):
        assert all(strict[metric] >= lax[metric] for metric in strict)


@pytest.mark.parametrize("name", PUBLISHED)
def test_downloads_contain_the_expected_files(name: str) -> None:
    benchmark = PUBLISHED[name]
    dataset, folders = benchmark.dataset, {download.part: download.folder for download in benchmark.downloads}
    assert dataset.source in SOURCES
    assert folders["model"] == benchmark.checkpoint.original
    assert {Path(samples.file).parts[0] for samples in dataset.sets.values()} == {folders["dataset"]}
    assert Path(dataset.calibration).parts[0] == folders.get("calibration", folders["dataset"])
    for download in benchmark.downloads:
        assert bool(download.uri) != bool(download.repo)
        assert bool(download.repo) == bool(re.fullmatch("[0-9a-f]{40}", download.revision))


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("llama2-70b", "mi300x mi325x mi355x mi350x mi350p h100 h200 b200 gb200 b300 gb300 a800"),
        ("llama2-70b-interactive", "mi300x mi325x mi355x mi350x mi350p h100 h200 b200 gb200 b300 gb300 a800"),
        ("llama3.1-405b", "mi300x mi325x mi355x h100 h200 h100x16 b200 gb200 b300 gb300"),
        ("gptj", "mi300x mi325x h100 h200 a800"),
        ("llama3.1-8b", "mi300x mi325x mi355x mi350x mi350p h100 h200 b200 gb200 b300 gb300 l40s a800"),
        ("llama3.1-8b-edge", "mi300x mi325x h100 h200 l40s a800"),
        ("mixtral-8x7b", "mi300x mi325x h100 h200 b200"),
        ("deepseek-r1", "mi300x mi325x mi355x h100x16 h200 b200 b300 gb300"),
        ("gpt-oss-120b", "mi300x mi325x mi355x mi350x mi350p h100 h200 b200 gb200 b300 gb300"),
        ("demo", NO_ACCELERATOR),
    ],
)
def test_gpus_with_settings(name: str, gpus: str) -> None:
    assert gpus_of(BENCHMARKS[name]) == set(gpus.split())


@pytest.mark.parametrize(("name", "scenario", "gpu"), CELLS)
def test_settings_of_a_benchmark_scenario_and_gpu(name: str, scenario: str, gpu: str) -> None:
    """load_config refuses what this vLLM does not have, and what a rule forbids."""
    config = config_of(name, scenario, gpu)
    assert violations(config, BENCHMARKS[name]) == []
    assert config.llm_config["max_num_batched_tokens"] >= config.llm_config["max_num_seqs"]
    assert {key for key in config.env_config if key.startswith("VLLM_")} <= engine_variables()


@pytest.mark.parametrize(("name", "scenario", "gpu"), [run_key for run_key in CELLS if run_key[2] != NO_ACCELERATOR])
def test_settings_fit_the_hardware(name: str, scenario: str, gpu: str) -> None:
    config, hardware = config_of(name, scenario, gpu), GPUS[gpu.removesuffix(TWO_NODES)]
    engine, nodes = config.llm_config, 2 if gpu.endswith(TWO_NODES) else 1
    group = engine.get("tensor_parallel_size", 1) * engine.get("pipeline_parallel_size", 1)
    assert config.harness_config.replicas * group == (1 if name in ONE_GPU else nodes * hardware.count)
    assert engine.get("distributed_executor_backend") == ("ray" if nodes > 1 else None)
    memory = group * hardware.memory_gb * engine["gpu_memory_utilization"]
    assert memory >= 1.2 * WEIGHTS_GB[name], "no room for the cache"
    assert engine.get("kv_cache_dtype") != "fp8" or "fp8" in hardware.formats


@pytest.mark.parametrize(("name", "scenario", "gpu"), [run_key for run_key in CELLS if run_key[2] != NO_ACCELERATOR])
def test_settings_state_their_provenance(name: str, scenario: str, gpu: str) -> None:
    provenance = provenance_of(BENCHMARKS[name], scenario, gpu)
    trees = ("inference_results_v", "mlperf-inference-6.1-redhat")
    assert provenance.kind == "derived" or any(tree in provenance.source for tree in trees), "no tree cited"


def test_provenance_table_equals_the_files() -> None:
    text = DOCUMENT.read_text()
    assert text == with_table(text), "write it with: python tests/provenance.py"


@pytest.mark.parametrize("gpu", sorted({gpu for _, _, gpu in CELLS}))
def test_user_conf_has_a_target_for_every_scenario(gpu: str) -> None:
    conf = conf_of(gpu)
    assert conf.open_only() == []
    for name, scenario, _ in (run_key for run_key in CELLS if run_key[2] == gpu):
        for round_, variant in rules_of(BENCHMARKS[name]):
            rules, loadgen = load_round(round_).benchmarks[variant], load_round(round_).scenarios[scenario]
            key = "target_latency" if loadgen == "SingleStream" else "target_qps"
            assert conf.lookup(rules.loadgen_model(scenario), loadgen, key), (name, scenario)
            duration = conf.lookup(rules.loadgen_model(scenario), loadgen, "min_duration")
            assert duration is None or duration >= load_round(round_).min_duration_ms


def test_user_conf_has_no_other_targets() -> None:
    files = {file.stem.removeprefix("user_") for file in WORKSPACE.user_confs.glob("user_*.conf")}
    assert files == {gpu for _, _, gpu in CELLS} | {STAND_IN}


@pytest.mark.parametrize("gpu", sorted(gpus_of(BENCHMARKS["llama2-70b-interactive"])))
def test_interactive_benchmark_of_v5_0_has_the_settings_of_the_scenario(gpu: str) -> None:
    for own, other in (("Offline", "Offline"), ("Server", "Interactive")):
        assert config_of("llama2-70b-interactive", own, gpu) == config_of("llama2-70b", other, gpu)
    twins = (BENCHMARKS[name] for name in ("llama2-70b", "llama2-70b-interactive"))
    one, two = (b.model_dump(exclude={"name", "title", "variants", "engine_of", "engine_scenarios"}) for b in twins)
    assert one == two
