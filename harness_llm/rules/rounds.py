"""The rules of a round as frozen models; each value's source is cited where it stands.

What has not changed since v5.0 stands once in `every_round.yaml`; `<round>.yaml` comes on top, key by key.
"""

import datetime as dt
import functools
from collections.abc import Sequence
from importlib import resources
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from harness_llm.errors import ConfigError


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LoadGenRules(_Facts):
    """Which LoadGen belongs to the round; its seeds are compiled in.

    Attributes:
        version: the one that is installed here.
        versions: all whose embedded mlperf.conf holds `seeds`.
    """

    package: str
    version: str
    versions: tuple[str, ...]
    seeds: dict[str, int]


class Layout(_Facts):
    """Where things stand in a submitter's folder; `{system}`, `{benchmark}`, `{scenario}` are filled in.

    Attributes:
        measurements: as we name it.
        measurements_glob: every name that the official checker takes.
    """

    source: str
    measurements: str
    measurements_glob: str
    compliance: str
    calibration: tuple[str, ...]


class SystemRules(_Facts):
    """What `systems/<system>.json` must hold, and what it may hold.

    Attributes:
        filled: present and not empty.
        present: present, perhaps empty.
        network: present where one of them is.
        cloud: of systems in a cloud.
        power: of systems whose power is measured; `power_capacity` in watts.
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
        """Fields that the official checker knows of some systems alone."""
        return (*self.network, *self.cloud, *self.power, self.power_capacity)


class FolderRules(_Facts):
    """The files of a folder; others are rejected."""

    required: tuple[str, ...]
    optional: tuple[str, ...]


class ComplianceTest(_Facts):
    """One compliance test.

    Attributes:
        audit: keys of its audit.config that LoadGen reads.
        verdict: the file that the checker looks for; it must hold one text of each group of `passes`.
        whole_lines: whether such a text must be a line of its own.
        bounds: what the test holds a run to, by name.
        packed: files of the run that stand in the tree beside the verdict, by their place there.
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
    """Scenarios of one system category; `one_of` must have one of its members in closed."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()

    @property
    def usual(self) -> tuple[str, ...]:
        """What makes a closed result: all that is required, and one of those of which one is."""
        return (*self.required, *self.one_of[:1])


class LatencyLimit(_Facts):
    """p99 limits in milliseconds; a result must lie strictly below."""

    ttft: float
    tpot: float


class Decoding(_Facts):
    """How the rules want tokens chosen; `top_k` 0 is off, `beams` above 1 is beam search."""

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    beams: int = 1


class Speculation(_Facts):
    """How a scenario may speculate.

    Attributes:
        method: vLLM's name of the algorithm.
        head: repository of the draft head; empty where the model's own checkpoint contains it.
        tokens: draft tokens of a step, one candidate for each (top-k 1).
    """

    method: str
    head: str = ""
    tokens: int


class NeverAccepted(_Facts):
    """Results that the official checker (mlcommons/inference b66003e1) refuses, whatever was measured.

    Attributes:
        reason: the file and line of the checker that refuses.
        hint: what the submitter can do instead.
    """

    divisions: tuple[str, ...]
    scenarios: tuple[str, ...]
    reason: str
    hint: str


class BenchmarkRules(_Facts):
    """One benchmark variant in one round. Gates are lower bounds, limits are upper bounds.

    Attributes:
        samples: of the performance set; `accuracy_samples` where accuracy has a set of its own.
        offline_samples: what a closed Offline query must hold; None where the checker has no number.
        latency_ms: p99 limits by scenario.
        answer_latency_ms: p99 limits on whole answers by scenario; LoadGen's target_latency, else 0.
        checker_compliance: tests that today's official checker wants beside `compliance`, those of the round itself.
        token_latencies: whether LoadGen counts tokens (else it infers them from the samples).
        output_tokens: mean of the reference's answers in performance.
        max_output_tokens: of performance; `accuracy_max_output_tokens` where accuracy has a limit of its own.
        speculation: scenarios that may speculate.
        never_accepted: what the official checker of today refuses of it.
        ingress_tokens: token ids that one query may bring, `egress_tokens` that its answer may hold; of 4 bytes each.
    """

    loadgen_name: str
    scenarios: dict[str, ScenarioRules]
    samples: int
    accuracy_samples: int | None = None
    offline_samples: int | None
    latency_ms: dict[str, LatencyLimit] = {}
    answer_latency_ms: dict[str, float] = {}
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
        """LoadGen's name for the benchmark; Interactive is a model name of its own (mlperf.conf:119-164)."""
        return f"{self.loadgen_name}-interactive" if scenario == "Interactive" else self.loadgen_name


class Round(_Facts):
    """Everything that changes from round to round.

    Attributes:
        scenarios: a tree's names to LoadGen's.
        inferred: by scenario, those whose results an edge system may use for it.
        metrics: what the official checker reads of a log, by LoadGen's scenario; the last is the result. Where LoadGen
            infers tokens, their inferred rate takes its place.
        aliases: names of benchmarks that the official checker takes for another's.
        name_parts: likewise, where the key is part of a name that is neither official nor mapped.
        power: folders below performance/ of a result with a power measurement.
        nameplate_power: the file with the power that a system's supplies are made for; empty where a round has none.
        not_judged: benchmarks that the round has besides `benchmarks`.
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
        """The rules of those of `names` that the round has, in their order; it is an error if there is none."""
        found = {name: self.benchmarks[name] for name in names if name in self.benchmarks}
        return found or {names[0]: self.benchmark(names[0])}

    def benchmark(self, variant: str) -> BenchmarkRules:
        """The rules of `variant`, for example `llama2-70b-99.9`."""
        if variant not in self.benchmarks:
            having = [name for name in round_names() if variant in load_round(name).benchmarks]
            raise ConfigError(
                f"round {self.round} has no benchmark {variant}",
                expected=", ".join(self.benchmarks),
                hint=f"the rounds that have it: {', '.join(having)}" if having else "",
            )
        return self.benchmarks[variant]


def round_names() -> list[str]:
    """All rounds that have a file, oldest first."""
    files = resources.files("harness_llm.rules").iterdir()
    return sorted(f.name.removesuffix(".yaml") for f in files if f.name.startswith("v"))


@functools.cache
def load_round(name: str) -> Round:
    """The rules of the round called `name`, for example `v6.1`."""
    if name not in round_names():
        raise ConfigError(
            f"there is no round {name}",
            expected=", ".join(round_names()),
            hint=f"harness-llm submit --round {round_names()[-1]}",
        )
    return Round.model_validate(_merged(_read("every_round"), _read(name)))


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((resources.files("harness_llm.rules") / f"{name}.yaml").read_text())
    return content


def _merged(common: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The round's own values, completed: its layout by name, and facts of the benchmarks that it has."""
    layouts = common.pop("layouts")
    benchmarks = {name: common["benchmarks"][name] | facts for name, facts in own["benchmarks"].items()}
    return common | own | {"layout": layouts[own["layout"]], "benchmarks": benchmarks}
