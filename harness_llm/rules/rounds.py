"""The rules of a round as frozen models; each value's source is cited in the round's YAML file."""

import datetime as dt
import functools
from importlib import resources

import yaml
from pydantic import BaseModel, ConfigDict

from harness_llm.errors import ConfigError


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LoadGenRules(_Facts):
    """Which LoadGen belongs to the round; its seeds are compiled in."""

    package: str
    versions: tuple[str, ...]
    seeds: dict[str, int]


class Layout(_Facts):
    """Where things stand in a submitter's folder; `{system}`, `{benchmark}`, `{scenario}` are filled in."""

    source: str
    measurements: str
    compliance: str
    calibration: tuple[str, ...]


class SystemRules(_Facts):
    """What `systems/<system>.json` must hold."""

    statuses: tuple[str, ...]
    types: tuple[str, ...]
    filled: tuple[str, ...]
    present: tuple[str, ...]
    integers: tuple[str, ...]
    network: tuple[str, ...]
    network_sut: str


class ComplianceTest(_Facts):
    """One compliance test; `audit` are the keys of its audit.config.

    Its verdict must hold one line of each group of `passes`.
    """

    audit: dict[str, int]
    passes: tuple[tuple[str, ...], ...]


class ScenarioRules(_Facts):
    """Scenarios of one system category; `one_of` must have one of its members in closed."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()


class LatencyLimit(_Facts):
    """p99 limits in milliseconds; a result must lie strictly below."""

    ttft: float
    tpot: float


class BenchmarkRules(_Facts):
    """One benchmark variant in one round. Gates are lower bounds, limits are upper bounds."""

    loadgen_name: str
    scenarios: dict[str, ScenarioRules]
    samples: int
    latency_ms: dict[str, LatencyLimit]
    gates: dict[str, float]
    limits: dict[str, float]
    compliance: tuple[str, ...]
    max_output_tokens: int
    sampling: str
    eos_ids: tuple[int, ...]

    def loadgen_model(self, scenario: str) -> str:
        """LoadGen's name for the benchmark; Interactive is a model name of its own (mlperf.conf:119-164)."""
        return f"{self.loadgen_name}-interactive" if scenario == "Interactive" else self.loadgen_name


class Round(_Facts):
    """Everything that changes from round to round; `scenarios` maps a tree's names to LoadGen's."""

    round: str
    deadline: dt.date
    loadgen: LoadGenRules
    layout: Layout
    scenarios: dict[str, str]
    min_duration_ms: int
    max_accuracy_log_bytes: int
    max_file_mb: int
    measurements_fields: tuple[str, ...]
    measurements_files: tuple[str, ...]
    power_files: tuple[str, ...]
    system: SystemRules
    compliance: dict[str, ComplianceTest]
    benchmarks: dict[str, BenchmarkRules]

    def benchmark(self, variant: str) -> BenchmarkRules:
        """The rules of `variant`, for example `llama2-70b-99.9`."""
        if variant not in self.benchmarks:
            raise ConfigError(
                f"round {self.round} has no benchmark {variant}",
                expected=", ".join(self.benchmarks),
            )
        return self.benchmarks[variant]


def round_names() -> list[str]:
    """All rounds that have a file, oldest first."""
    files = resources.files("harness_llm.rules").iterdir()
    return sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml"))


@functools.cache
def load_round(name: str) -> Round:
    """The rules of the round called `name`, for example `v6.1`."""
    file = resources.files("harness_llm.rules") / f"{name}.yaml"
    if not file.is_file():
        raise ConfigError(
            f"there is no round {name}",
            expected=", ".join(round_names()),
            hint=f"harness-llm submit --round {round_names()[-1]}",
        )
    return Round.model_validate(yaml.safe_load(file.read_text()))
