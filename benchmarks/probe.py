"""Probe of every configuration of the repository: duration, and prediction against steady state, in simulated time.

The probe's own code (`harness_llm/loadgen/probe.py`) drives a simulated replica. Memory times follow from weights, KV
cache and bandwidth; the compute time per token is the rest of the time that the Offline target_qps of
code/user_<gpu>.conf implies. Engines differ in how much computing overlaps with memory reads, so each configuration is
simulated twice: `additive` (no overlap) and `overlapped` (linear layers take the longer of both times).
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from benchmarks.simulated import IDLE_S, Engine, SimulatedPool, Simulation
from harness_llm.config.benchmark import Benchmark, benchmark_names, load_benchmark
from harness_llm.config.engine_config import EngineConfig, load_config
from harness_llm.config.plan import loadgen_models
from harness_llm.config.profile import load_profile
from harness_llm.config.rules import BenchmarkRules, load_round, round_names
from harness_llm.config.user_conf import UserConf, parse
from harness_llm.errors import ConfigError
from harness_llm.fileio import read_text
from harness_llm.loadgen.prediction import OutputTokens, Prediction
from harness_llm.loadgen.probe import ProbeSpec, contexts, run_probe
from harness_llm.paths import Workspace
from harness_llm.replicas.engines.replay import Lengths

TARGET_S = 60.0
SCENARIOS = ("Offline", "Server", "Interactive")
# Share of the memory bandwidth that reads reach.
READING = 0.8
# Standard deviation of the logarithm of prompt and answer lengths; not published.
SPREAD = 0.9
_CALIBRATION = 512  # prompts
ADDITIVE, OVERLAPPED = ARMS = ("additive", "overlapped")


@dataclass(frozen=True)
class Model:
    """Memory that a step reads, in bytes, and the mean prompt in tokens.

    Attributes:
        kv: per token of context, in the repository's cache format.
    """

    weights: float
    kv: float
    prompt: float


# Weights in the served format. KV bytes are layers x heads x head size x 2 x bytes of config.json; DeepSeek
# stores 576 numbers per layer. Prompts: llama2-70b as in drain.py, llama3.1-405b 9,400, llama3.1-8b 778 and deepseek-r1
# 800 as MLCommons announced them; mixtral-8x7b and gpt-oss-120b are assumed.
MODELS = {
    "llama2-70b": Model(70e9, 80 * 8 * 128 * 2, 294),
    "llama3.1-405b": Model(405e9, 126 * 8 * 128 * 2, 9400),
    "llama3.1-8b": Model(8e9, 32 * 8 * 128 * 2, 778),
    "llama3.1-8b-edge": Model(8e9, 32 * 8 * 128 * 2, 778),
    "mixtral-8x7b": Model(47e9, 32 * 8 * 128 * 2, 300),
    "deepseek-r1": Model(671e9, 61 * 576 * 2, 800),
    "gpt-oss-120b": Model(63e9, 36 * 8 * 64 * 2 * 2, 1000),
}
# Memory bandwidth in bytes/s, data sheets.
BANDWIDTH = {
    "a800": 2.0e12,
    "h100": 3.35e12,
    "h100x16": 3.35e12,
    "h200": 4.8e12,
    "b200": 8e12,
    "b300": 8e12,
    "gb200": 8e12,
    "gb300": 8e12,
    "l40s": 0.864e12,
    "mi300x": 5.3e12,
    "mi325x": 6e12,
    "mi350p": 4e12,
    "mi350x": 8e12,
    "mi355x": 8e12,
}


@dataclass(frozen=True)
class Case:
    """A configuration of the repository with a model of its speed."""

    benchmark: str
    gpu: str
    scenario: str
    config: EngineConfig
    rules: BenchmarkRules
    engine: Engine

    @property
    def spec(self) -> ProbeSpec:
        """Specification of the probe in the profile valid."""
        mean = self.rules.output_tokens
        arguments = self.config.llm_config
        return ProbeSpec(
            store="",
            limit_s=load_profile("valid", Workspace()).probe_s,
            batch=self.config.in_flight_limit.batch,
            step_tokens=int(arguments.get("max_num_batched_tokens") or 0),
            max_model_len=int(arguments["max_model_len"]),
            output=OutputTokens(0.9 * mean, mean, min(1.1 * mean, self.rules.max_output_tokens)),
            longest=self.rules.max_output_tokens,
        )


def cases() -> Iterator[Case]:
    """Yield every configuration of the repository for a published benchmark that vLLM serves."""
    workspace = Workspace()
    for name in benchmark_names(workspace):
        benchmark = load_benchmark(name, workspace)
        if benchmark.preparer != "published" or benchmark.engine != "vllm" or benchmark.engine_of:
            continue
        folder = workspace.benchmarks / name
        for gpu in sorted({file.stem.rpartition("_")[2] for file in folder.glob("*.yaml")} - {"benchmark", "engine"}):
            yield from _cases_of(benchmark, gpu, workspace)


def _cases_of(benchmark: Benchmark, gpu: str, workspace: Workspace) -> Iterator[Case]:
    rules = _rules(benchmark)
    file = workspace.user_confs / f"user_{gpu}.conf"
    conf = parse(read_text(file), str(file), loadgen_models())
    configs = {}
    for scenario in SCENARIOS:
        try:
            configs[scenario] = load_config(benchmark, scenario, gpu, (), workspace)
        except ConfigError:
            continue
    engine = _calibrated(benchmark.name, gpu, configs["Offline"], rules, _rate(conf, rules))
    for scenario, config in configs.items():
        yield Case(benchmark.name, gpu, scenario, config, rules, _resized(engine, configs["Offline"], config))


def _rules(benchmark: Benchmark) -> BenchmarkRules:
    rounds = [load_round(name).benchmarks for name in reversed(round_names())]
    variant = benchmark.variants[0]
    return next(benchmarks[variant] for benchmarks in rounds if variant in benchmarks)


def _rate(conf: UserConf, rules: BenchmarkRules) -> float:
    rate = conf.lookup(rules.loadgen_name, "Offline", "target_qps")
    assert rate is not None  # noqa: S101 - every file of the repository has one
    return float(rate)


def _calibrated(name: str, gpu: str, config: EngineConfig, rules: BenchmarkRules, rate: float) -> Engine:
    """Return the engine that reaches `rate` in steady state with the settings of Offline, without overlap."""
    model, reading = MODELS[name], BANDWIDTH[gpu] * READING * config.group
    output, batch = rules.output_tokens, config.in_flight_limit.batch
    budget = int(config.llm_config.get("max_num_batched_tokens") or max(8192, batch))
    weights_s, context_s = model.weights / reading, model.kv / reading
    batch = max(min(batch, int(budget / (1 + model.prompt / output))), 1)
    sample_s = config.replicas / rate
    memory_s = output * (weights_s / batch + context_s * (model.prompt + output * 0.75))
    # A tenth if the memory times alone exceed the published ones.
    compute_s = max(sample_s - memory_s, sample_s / 10)
    return Engine(weights_s, compute_s / (model.prompt + output), context_s, config.in_flight_limit.batch, budget)


def _resized(engine: Engine, offline: EngineConfig, config: EngineConfig) -> Engine:
    """Scale the engine to other settings: times are inversely proportional to the GPUs of a replica."""
    share = offline.group / config.group
    batch = config.in_flight_limit.batch
    return Engine(
        engine.weights_s * share,
        engine.token_s * share,
        engine.context_s * share,
        batch,
        int(config.llm_config.get("max_num_batched_tokens") or max(8192, batch)),
    )


@functools.cache
def _lengths(mean: float, longest: int, count: int, seed: int) -> npt.NDArray[np.int64]:
    lengths = Lengths(mean, SPREAD if mean < longest else 0, longest)
    return np.array([lengths.at(quantile) for quantile in np.random.default_rng(seed).random(count)])


def _drawn(case: Case) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Draw prompt and answer lengths of a synthetic data set."""
    longest = int(case.config.llm_config["max_model_len"]) - case.rules.max_output_tokens
    prompt = MODELS[case.benchmark].prompt
    answers = _lengths(case.rules.output_tokens, case.rules.max_output_tokens, 4096, 1)
    return _lengths(prompt, longest, 4096, 0), answers


def steady_rate(case: Case, engine: Engine) -> float:
    """Simulate a replica that always has waiting queries; return its samples per second."""
    prompts, answers = _drawn(case)
    simulation, sent = Simulation(engine), 0
    ages = np.random.default_rng(2).random(len(answers))

    def send(count: int, *, aged: bool) -> None:
        nonlocal sent
        for query in range(sent, sent + count):
            i = query % len(answers)
            left = max(int(answers[i] * ages[i]), 1) if aged else int(answers[i])
            simulation.add(query, int(prompts[i]), left)
        sent += count

    send(engine.batch, aged=True)
    send(engine.batch // 4 + 8, aged=False)

    def reach(answered: float) -> tuple[float, int]:
        while simulation.generated < answered * case.rules.output_tokens:
            send(len(simulation.advance(IDLE_S)), aged=False)
        return simulation.now, simulation.generated

    settled = 2 * engine.batch
    began, before = reach(settled)
    ended, after = reach(settled + max(len(answers), 2 * engine.batch))
    return (after - before) / (ended - began) / float(answers.mean())


@dataclass(frozen=True)
class Probed:
    """The probe of one configuration; throughput in samples/s of all replicas.

    Attributes:
        steady: simulated.
    """

    predicted: float
    low: float
    high: float
    steady: float
    load_s: float
    drain_s: float

    @property
    def seconds(self) -> float:
        """Duration of the probe."""
        return self.load_s + self.drain_s

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.steady - 1

    @property
    def within(self) -> bool:
        """Whether the steady state lies within the predicted bounds."""
        return self.low <= self.steady <= self.high


def predict(case: Case, engine: Engine) -> tuple[Prediction, float, float]:
    """Return the prediction for one replica, and the seconds of load and drain."""
    spec = case.spec
    prompts, _ = _drawn(case)
    calibration = _lengths(MODELS[case.benchmark].prompt, int(prompts.max()), _CALIBRATION, 3)
    pool = SimulatedPool(engine, spec.tokens)
    sent = contexts([np.zeros(length, np.int32) for length in calibration.tolist()], spec)
    prediction = run_probe(pool, sent, spec.work(float(prompts.mean())), spec)
    load_s = pool.now()
    return prediction, load_s, pool.end()


def probe(case: Case, engine: Engine) -> Probed:
    """Compare the probe with steady state."""
    prediction, load_s, drain_s = predict(case, engine)
    count = case.config.replicas
    return Probed(
        predicted=prediction.samples_per_second * count,
        low=prediction.low * count,
        high=prediction.high * count,
        steady=steady_rate(case, engine) * count,
        load_s=load_s,
        drain_s=drain_s,
    )


def measure(report: Callable[[str], None]) -> dict[str, Any]:
    """Measure every configuration with both engines."""
    rows = []
    for case in cases():
        arms = {name: probe(case, replace(case.engine, overlapped=name == OVERLAPPED)) for name in ARMS}
        report(f"probe, {case.benchmark} {case.gpu} {case.scenario}: {arms[ADDITIVE].seconds:.0f} s")
        facts = {"benchmark": case.benchmark, "gpu": case.gpu, "scenario": case.scenario, "batch": case.engine.batch}
        rows.append(facts | {name: _summary(arm) for name, arm in arms.items()})
    return {"target_s": TARGET_S, "rows": rows}


def _summary(arm: Probed) -> dict[str, Any]:
    return asdict(arm) | {"error": arm.error, "within": arm.within, "seconds": arm.seconds}


def table(found: Mapping[str, Any]) -> Table:
    """Show a row per benchmark and GPU, with errors of the prediction for the additive and the overlapped engine."""
    shown = Table("benchmark", "GPU", *SCENARIOS, box=None)
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for row in found["rows"]:
        seconds = max(row[arm]["seconds"] for arm in ARMS)
        errors = ", ".join(f"{row[arm]['error']:+.1%}" for arm in ARMS)
        rows.setdefault((row["benchmark"], row["gpu"]), {})[row["scenario"]] = f"{seconds:.0f} s, {errors}"
    for (benchmark, gpu), own in rows.items():
        shown.add_row(benchmark, gpu, *(own.get(scenario, "") for scenario in SCENARIOS))
    return shown


def misses(found: Mapping[str, Any]) -> list[str]:
    """Return the figures that miss their targets."""
    lines = []
    for row in found["rows"]:
        name = f"{row['benchmark']} {row['gpu']} {row['scenario']}"
        for arm in ARMS:
            if row[arm]["seconds"] >= TARGET_S:
                lines.append(f"{name}, {arm}: {row[arm]['seconds']:.0f} s of probe, target less than {TARGET_S:g}")
            if not row[arm]["within"]:
                lines.append(f"{name}, {arm}: {row[arm]['steady']:.4g} samples/s is outside the predicted bounds")
    return lines
