"""The words of the command line, and what stands for those that were not said."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness_llm.config.benchmark import Benchmark, load_benchmark
from harness_llm.config.engines import REPLAY
from harness_llm.config.profile import load_profile
from harness_llm.config.stand_in import DEMO, stand_in
from harness_llm.errors import ConfigError
from harness_llm.hardware.gpus import NO_ACCELERATOR, detect_gpu
from harness_llm.paths import Workspace
from harness_llm.rules import BenchmarkRules, load_round, round_names

SCENARIOS = ("Offline", "Server", "Interactive", "SingleStream")
DEFAULT_MODELS = {True: "demo", False: "llama2-70b"}  # by whether there is no accelerator


@dataclass(frozen=True)
class Choices:
    """The words of the command line.

    Attributes:
        sets: `section.key=value`, on top of the configuration files.
        stand_in: whether the demo's checkpoint and made-up data take the benchmark's place, to try everything else.
        sample_count: the user's own number of samples; None leaves it to the profile.
        gpu_count: devices to use; None leaves their number to the configuration files.
        high_accuracy: whether a result counts for the strictest variant alone.
        ray: the address of the Ray cluster whose nodes hold the replicas; empty for this machine alone.
        inferred: scenarios whose results are those of another one, as (scenario, source).
        tests: what `submit` and `run` do, by name, or `compliance` for all of its tests; None is everything.
    """

    model: str
    gpu: str
    round: str
    division: str
    category: str
    scenarios: tuple[str, ...]
    profile: str
    engine: str
    submitter: str
    system: str
    stand_in: bool = False
    sets: tuple[str, ...] = ()
    sample_count: int | None = None
    user_conf: Path | None = None
    gpu_count: int | None = None
    high_accuracy: bool = False
    ray: str = ""
    tests: tuple[str, ...] | None = None
    inferred: tuple[tuple[str, str], ...] = ()

    def command(self, *scenarios: str, verb: str = "submit") -> str:
        """What repeats all tests of `scenarios`, or of all; `--company` is left to whoever submits."""
        choices = replace(self, scenarios=scenarios, inferred=()) if scenarios else self
        return shlex.join(["harness-llm", verb, *_options(choices)])


# Options by what they choose; what is a flag or repeated stands apart.
_OPTIONS = {
    "--model": "model",
    "--gpu": "gpu",
    "--gpu-count": "gpu_count",
    "--round": "round",
    "--division": "division",
    "--category": "category",
    "--profile": "profile",
    "--engine": "engine",
    "--system-name": "system",
    "--total-sample-count": "sample_count",
    "--user-conf": "user_conf",
}
_FLAGS = {"--stand-in": "stand_in", "--high-accuracy": "high_accuracy"}


def _options(choices: Choices) -> Iterator[str]:
    for option, name in _OPTIONS.items():
        if value := getattr(choices, name):
            yield from (option, str(value))
    if choices.ray:
        yield from ("--ray", "auto")  # whatever the address, on a node of the cluster that is its own
    yield from ("--scenarios", ",".join((*choices.scenarios, *(f"{name}={s}" for name, s in choices.inferred))))
    yield from (option for option, name in _FLAGS.items() if getattr(choices, name))
    for words in choices.sets:
        yield from ("--set", words)


def newest_round(variants: Sequence[str] = ()) -> str:
    """The newest round, or the newest that has one of `variants`."""
    names = [n for n in round_names() if not variants or load_round(n).benchmarks.keys() & set(variants)]
    if not names:
        raise ConfigError(f"no round has {variants[0]}", expected=", ".join(round_names()))
    return names[-1]


def choose(words: Mapping[str, Any]) -> Choices:
    """Fill what the command line left open; an empty word is one that was not given.

    `switches` are scenarios that are to be run or not, whatever is usual.
    """
    rehearsed = bool(words.get("profile")) and load_profile(words["profile"], Workspace()).rehearsed
    stand_in = rehearsed or bool(words.get("stand_in"))
    gpu = words.get("gpu") or (None if stand_in and not rehearsed else detect_gpu()) or NO_ACCELERATOR
    model, strict = words.get("model") or default_model(gpu), bool(words.get("high_accuracy"))
    benchmark = find_benchmark(model, Workspace(), as_stand_in=stand_in, rehearsed=rehearsed, high_accuracy=strict)
    round_ = load_round(words.get("round_name") or newest_round(benchmark.variants))
    rules = next(iter(round_.variants(benchmark.variants).values()))
    category = words.get("category") or next(iter(rules.scenarios))
    return Choices(
        model=benchmark.name,
        gpu=gpu,
        round=round_.round,
        division=words.get("division") or benchmark.divisions[0],
        category=category,
        scenarios=_scenarios(words.get("scenarios") or "", words.get("switches") or {}, rules, category),
        profile=words.get("profile") or ("smoke" if gpu == NO_ACCELERATOR or stand_in else "valid"),
        engine=words.get("engine") or (REPLAY if rehearsed else benchmark.engine),
        submitter=words.get("company") or "",
        system=words.get("system_name") or "",
        stand_in=stand_in,
        sets=(*(words.get("set_") or ()), *_on_loss(words.get("on_replica_failure") or "")),
        sample_count=words.get("total_sample_count"),
        user_conf=words.get("user_conf"),
        gpu_count=words.get("gpu_count"),
        high_accuracy=strict,
        ray=words.get("ray") or "",
        tests=_listed(words.get("tests")),
        inferred=_inferred(words.get("scenarios") or ""),
    )


def _on_loss(word: str) -> list[str]:
    return [f"harness_config.on_replica_failure={word}"] if word else []


def _listed(words: str | tuple[str, ...] | None) -> tuple[str, ...] | None:
    if isinstance(words, str):
        return tuple(dict.fromkeys(word.strip() for word in words.split(","))) if words else None
    return words


def default_model(gpu: str = "") -> str:
    """What is run where no model is named."""
    return DEFAULT_MODELS[(gpu or detect_gpu() or NO_ACCELERATOR) == NO_ACCELERATOR]


def find_benchmark(
    name: str, workspace: Workspace, *, as_stand_in: bool, rehearsed: bool, high_accuracy: bool
) -> Benchmark:
    """The benchmark called `name`, or what stands in for it; as the strictest of its variants alone if asked."""
    benchmark = load_benchmark(name, workspace)
    if high_accuracy:
        benchmark = benchmark.model_copy(update={"variants": benchmark.variants[:1]})
    if not as_stand_in:
        return benchmark
    return stand_in(benchmark, load_benchmark(DEMO, workspace), rehearsed=rehearsed)


def _scenarios(words: str, switches: Mapping[str, bool], rules: BenchmarkRules, category: str) -> tuple[str, ...]:
    """The scenarios named, or those that a closed result of the category needs, but for those switched on or off."""
    if words:
        return tuple(_spelt(name) for name in words.split(",") if "=" not in name)
    usual = rules.scenarios[category].usual if category in rules.scenarios else ()
    return tuple(name for name in dict.fromkeys((*usual, *switches)) if switches.get(name, True))


def _inferred(words: str) -> tuple[tuple[str, str], ...]:
    """`Offline=SingleStream`: a scenario, and the one that it is inferred from."""
    pairs = (name.partition("=") for name in words.split(",") if "=" in name)
    return tuple((_spelt(target), _spelt(source)) for target, _, source in pairs)


def _spelt(scenario: str) -> str:
    """`offline` is Offline; what is no scenario stays as it is, to be named in the error."""
    known = {name.lower(): name for name in SCENARIOS}
    return known.get(scenario.strip().lower(), scenario)


def require_names(choices: Choices, *, company: bool = True) -> None:
    """Runs need a system's name, trees a submitter too."""
    if company and not choices.submitter:
        raise ConfigError("missing --company", hint='--company Acme, or COMPANY="Acme" for make and scripts')
    if not choices.system:
        raise ConfigError("missing --system-name", hint="--system-name my-box, or SYSTEM_NAME=my-box for make")
