"""Every benchmark, GPU and scenario with settings."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness_llm.config.benchmark import Benchmark, benchmark_names, load_benchmark
from harness_llm.config.engine_config import EngineConfig, load_config
from harness_llm.config.rules import load_round, round_names
from harness_llm.hardware.gpus import Gpu, load_gpus
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.engine_settings.engine_checks import candidate, gpu_facts, served_config
from harness_llm.pipeline.engine_settings.resolution import Candidate

HERE = Workspace(CHECKOUT)
GPUS = load_gpus(HERE)


@dataclass(frozen=True)
class Case:
    """One scenario on one GPU."""

    benchmark: Benchmark
    gpu_name: str
    scenario: str

    def __str__(self) -> str:
        return f"{self.benchmark.name} {self.gpu_name} {self.scenario}"

    @property
    def gpu(self) -> Gpu:
        facts = gpu_facts(self.gpu_name, GPUS)
        assert facts
        return facts

    @cached_property
    def engine(self) -> EngineConfig:
        return load_config(self.benchmark, self.scenario, self.gpu_name, [], HERE)

    @cached_property
    def config(self) -> dict[str, Any]:
        config = served_config(self.benchmark, self.gpu_name, HERE)
        assert config, f"no config.json of {self.benchmark.name}"
        return config

    @property
    def candidate(self) -> Candidate:
        return candidate(self.engine, self.config, self.gpu)


def _scenarios(benchmark: Benchmark) -> Iterator[str]:
    """The scenarios of all rounds."""
    rounds = [load_round(name) for name in round_names()]
    rules = [round_.benchmarks[name] for round_ in rounds for name in benchmark.variants if name in round_.benchmarks]
    own = [scenarios for rule in rules for scenarios in rule.scenarios.values()]
    yield from dict.fromkeys(name for scenarios in own for name in (*scenarios.required, *scenarios.optional))


def _gpu_names(benchmark: Benchmark) -> Iterator[str]:
    files = (HERE.benchmarks / benchmark.settings).glob("*.yaml")
    names = {file.stem.rpartition("_")[2] for file in files} - {"benchmark", "engine"}
    yield from sorted(name for name in names if gpu_facts(name, GPUS))


def all_cases() -> list[Case]:
    """In the order of their names."""
    benchmarks = [load_benchmark(name, HERE) for name in benchmark_names(HERE)]
    return [
        Case(benchmark, gpu, scenario)
        for benchmark in benchmarks
        for gpu in _gpu_names(benchmark)
        for scenario in _scenarios(benchmark)
    ]
