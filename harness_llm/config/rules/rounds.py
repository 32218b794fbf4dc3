"""Rules of a round as frozen models; the YAML files cite the source of each value.

`every_round.yaml` contains the values that all rounds share; keys of `<round>.yaml` override them.
"""

import datetime as dt
import difflib
import functools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from harness_llm.config.commands import typed
from harness_llm.errors import ConfigError
from harness_llm.fileio import read_yaml


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LoadGenRules(_Facts):
    """LoadGen of the round; its seeds are compiled in.

    Attributes:
        version: version that harness-llm installs.
        versions: all versions whose embedded mlperf.conf contains `seeds`.
    """

    package: str
    version: str
    versions: tuple[str, ...]
    seeds: dict[str, int]


class Layout(_Facts):
    """Paths in a submitter's folder, with the placeholders `{system}`, `{benchmark}` and `{scenario}`.

    Attributes:
        measurements: path that harness-llm writes.
        measurements_glob: all paths that the official checker accepts.
    """

    source: str
    measurements: str
    measurements_glob: str
    compliance: str
    calibration: tuple[str, ...]


class SystemRules(_Facts):
    """Required and optional fields of `systems/<system>.json`.

    Attributes:
        filled: required, not empty.
        present: required, may be empty.
        network: required if one of them is present.
        cloud: fields of cloud systems.
        power: fields of systems with measured power; `power_capacity` in watts.
    """

    statuses: tuple[str, ...]
    types: tuple[str, ...]
    filled: tuple[str, ...]
    present: tuple[str, ...]
    integers: tuple[str, ...]
    network: tuple[str, ...]
    network_sut: str
    cloud: tuple[str, ...]
    power: tuple[str, ...]
    power_capacity: str

    @property
    def optional(self) -> tuple[str, ...]:
        """Fields that the official checker reads for some systems only."""
        return (*self.network, *self.cloud, *self.power, self.power_capacity)


class FolderRules(_Facts):
    """Files of a folder; the checker rejects others."""

    required: tuple[str, ...]
    optional: tuple[str, ...]


class ComplianceTest(_Facts):
    """One compliance test.

    Attributes:
        audit: keys of its audit.config that LoadGen reads.
        verdict: name of the verdict file; it must contain one text of each group of `passes`.
        whole_lines: whether each text must be a complete line.
        bounds: bounds of the test by name.
        packed: files of the run that are packaged beside the verdict, by their path in the tree.
    """

    audit: dict[str, int]
    verdict: str
    whole_lines: bool = False
    passes: tuple[tuple[str, ...], ...]
    bounds: dict[str, float] = {}
    packed: dict[str, str]

    @property
    def audit_config(self) -> str:
        """Text of audit.config; LoadGen reads it after user.conf, and its values override user.conf."""
        return "".join(f"*.*.{key} = {value}\n" for key, value in self.audit.items())


class ScenarioRules(_Facts):
    """Scenarios of one system category; closed requires one scenario of `one_of`."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()

    @property
    def usual(self) -> tuple[str, ...]:
        """Scenarios of a closed result: all required ones, and the first of `one_of`."""
        return (*self.required, *self.one_of[:1])


class LatencyLimit(_Facts):
    """p99 limits in milliseconds; a result must be strictly below."""

    ttft: float
    tpot: float


class Decoding(_Facts):
    """Decoding parameters that the rules require; `top_k` 0 is off, `beams` above 1 is beam search."""

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    beams: int = 1


class Speculation(_Facts):
    """Speculative decoding that the rules allow in a scenario.

    Attributes:
        method: vLLM's name of the algorithm.
        head: repository of the draft head; empty if the model's checkpoint contains it.
        tokens: draft tokens per step, with one candidate each (top-k 1).
    """

    method: str
    head: str = ""
    tokens: int


class NeverAccepted(_Facts):
    """Results that the official checker (mlcommons/inference b66003e1) rejects regardless of the measurement.

    Attributes:
        reason: why, with file and line of the checker.
        hint: alternative for the submitter; empty: other scenarios.
    """

    divisions: tuple[str, ...]
    scenarios: tuple[str, ...]
    reason: str
    hint: str = ""


class BenchmarkRules(_Facts):
    """Rules of one benchmark variant in one round. Gates are lower bounds, limits are upper bounds.

    Attributes:
        samples: of the performance set; `accuracy_samples` if accuracy has another set.
        offline_samples: minimum samples of a closed Offline query; None if the checker has no value.
        latency_ms: p99 limits by scenario.
        answer_latency_ms: p99 limits on complete answers by scenario (LoadGen's target_latency).
        checker_target_latency_ms: largest target_latency of Server that the official checker accepts.
        compliance: tests that the round requires.
        checker_compliance: further tests that today's official checker requires.
        token_latencies: whether LoadGen counts tokens; otherwise it infers them from the samples.
        output_tokens: mean output tokens of the reference in performance.
        max_output_tokens: of performance; `accuracy_max_output_tokens` if accuracy has another limit.
        speculation: allowed speculative decoding by scenario.
        never_accepted: results that today's official checker always rejects.
        ingress_tokens: tokens of a query for the bandwidth requirement, 4 bytes each; None if negligible.
        egress_tokens: tokens of an answer; None likewise.
    """

    loadgen_name: str
    scenarios: dict[str, ScenarioRules]
    samples: int
    accuracy_samples: int | None = None
    offline_samples: int | None
    latency_ms: dict[str, LatencyLimit] = {}
    answer_latency_ms: dict[str, float] = {}
    checker_target_latency_ms: float | None = None
    token_latencies: bool = True
    gates: dict[str, float]
    limits: dict[str, float] = {}
    compliance: tuple[str, ...] = ()
    checker_compliance: tuple[str, ...] = ()
    output_tokens: float
    min_output_tokens: int
    max_output_tokens: int
    accuracy_max_output_tokens: int | None = None
    sampling: Decoding
    eos_ids: tuple[int, ...]
    ingress_tokens: int | None = None
    egress_tokens: int | None = None
    speculation: dict[str, Speculation] = {}
    never_accepted: tuple[NeverAccepted, ...] = ()

    def loadgen_model(self, scenario: str) -> str:
        """LoadGen's model name of the benchmark; Interactive has a separate one (mlperf.conf:119-164)."""
        return f"{self.loadgen_name}-interactive" if scenario == "Interactive" else self.loadgen_name


class Round(_Facts):
    """Rules of a round.

    Attributes:
        scenarios: LoadGen's scenario names by the names in a tree.
        inferred: scenarios whose results an edge system may use for another scenario, by the latter.
        metrics: keys of a log that the official checker reads, by LoadGen's scenario; the last one is the result. If
            LoadGen infers tokens, the inferred token rate replaces it.
        aliases: official names by aliases that the official checker accepts.
        name_parts: official names by parts of names that are neither official nor mapped.
        power: folders in performance/ of a result with a power measurement.
        nameplate_power: file with the nameplate power of a system; empty if the round has none.
        not_judged: further benchmarks of the round, which harness-llm does not judge.
    """

    round: str
    deadline: dt.date
    loadgen: LoadGenRules
    layout: Layout
    scenarios: dict[str, str]
    inferred: dict[str, tuple[str, ...]]
    min_duration_ms: int
    offline_min_queries: int
    metrics: dict[str, tuple[str, ...]]
    max_accuracy_log_bytes: int
    max_file_mb: int
    measurements_fields: tuple[str, ...]
    measurements_files: tuple[str, ...]
    aliases: dict[str, str]
    name_parts: dict[str, str]
    power: dict[str, FolderRules]
    nameplate_power: str
    system: SystemRules
    compliance: dict[str, ComplianceTest]
    not_judged: tuple[str, ...]
    benchmarks: dict[str, BenchmarkRules]

    def variants(self, names: Sequence[str]) -> dict[str, BenchmarkRules]:
        """Rules of those of `names` that the round has, in their order; ConfigError if it has none."""
        found = {name: self.benchmarks[name] for name in names if name in self.benchmarks}
        return found or {names[0]: self.benchmark(names[0])}

    def benchmark(self, variant: str) -> BenchmarkRules:
        """Rules of `variant`, for example `llama2-70b-99.9`; ConfigError if the round does not have it."""
        if variant not in self.benchmarks:
            rounds = [name for name in round_names() if variant in load_round(name).benchmarks]
            raise ConfigError(
                f"round {self.round} has no benchmark {variant}",
                expected=", ".join(self.benchmarks),
                hint=f"rounds that have it: {', '.join(rounds)}" if rounds else "",
            )
        return self.benchmarks[variant]


def round_names() -> list[str]:
    """Names of all rounds, oldest first."""
    files = Path(__file__).parent.iterdir()
    return sorted(f.name.removesuffix(".yaml") for f in files if f.name.startswith("v"))


def no_earlier_rounds() -> str:
    """The earliest round that harness-llm supports, in words."""
    return f"rounds before {round_names()[0]} are not supported"


def load_round(name: str) -> Round:
    """Load the rules of the round `name`, for example `v6.1`; `6.1` and `V6.1` are the same round.

    Raises:
        ConfigError: unknown round.
    """
    official, known = f"v{name.lower().removeprefix('v')}", round_names()
    if official in known:
        return _load(official)
    nearest = difflib.get_close_matches(official, known, n=1, cutoff=0)[0]
    hint = no_earlier_rounds() if _major(official) < _major(known[0]) else typed(round=nearest)
    raise ConfigError(f"unknown round {name}", expected=", ".join(known), hint=hint)


def _major(name: str) -> float:
    """The first number in the name of a round; infinite without one."""
    number = re.match(r"v(\d+)", name)
    return int(number[1]) if number else math.inf


@functools.cache
def _load(name: str) -> Round:
    return Round.model_validate(_merged(_read("every_round"), _read(name)))


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(Path(__file__).with_name(f"{name}.yaml"))
    return content


def _merged(common: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Merge the common values with those of a round: its layout, and only the benchmarks that it has."""
    layouts = common.pop("layouts")
    benchmarks = {name: common["benchmarks"][name] | facts for name, facts in own["benchmarks"].items()}
    return common | own | {"layout": layouts[own["layout"]], "benchmarks": benchmarks}
