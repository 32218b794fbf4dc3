"""What LoadGen is told, and what it must have understood.

LoadGen accepts any user.conf without complaint, so each run compares LoadGen's settings with what was meant.
"""

import importlib.metadata
from collections.abc import Mapping
from typing import Any

from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.loadgen.user_conf import KEYS
from harness_llm.rules import BenchmarkRules, Round

NS_PER_MS = 1_000_000


def expected_settings(
    values: Mapping[str, float], *, scenario: str, loadgen_scenario: str, rules: BenchmarkRules, round_: Round
) -> dict[str, int | float]:
    """TestSettings' attributes as they must be once LoadGen has read a user.conf holding `values`."""
    expected: dict[str, int | float] = {
        "use_token_latencies": 1,
        "sample_concatenate_permutation": 1,
        "min_duration_ms": round_.min_duration_ms,
        "performance_sample_count_override": rules.samples,
        **round_.loadgen.seeds,
    }
    if limit := rules.latency_ms.get(scenario):
        expected["ttft_latency"] = limit.ttft * NS_PER_MS
        expected["tpot_latency"] = limit.tpot * NS_PER_MS
    keys = KEYS[loadgen_scenario]
    return expected | {keys[name].attribute: value * keys[name].factor for name, value in values.items()}


def compare(settings: Any, expected: Mapping[str, int | float]) -> None:
    """Raise where `settings`, a mlperf_loadgen.TestSettings, is not as `expected`."""
    wrong = {name: getattr(settings, name) for name in expected if getattr(settings, name) != expected[name]}
    if not wrong:
        return
    seeds = [name for name in wrong if name.endswith("_rng_seed")]
    raise ConfigError(
        "LoadGen's seeds are not those of the round" if seeds else "LoadGen understood user.conf differently",
        where=", ".join(seeds or wrong),
        expected=", ".join(f"{name} = {expected[name]}" for name in wrong),
        found=", ".join(f"{name} = {value}" for name, value in wrong.items()),
        hint="make setup installs the round's LoadGen" if seeds else "",
    )


def loadgen_version(round_: Round) -> str:
    """The installed LoadGen's version; raises where it does not belong to the round."""
    package = round_.loadgen.package
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise EnvironmentMissing("LoadGen is not installed", expected=package, hint="make setup") from error
    if version not in round_.loadgen.versions:
        raise EnvironmentMissing(
            "LoadGen is of another round",
            where=package,
            expected=f"{' or '.join(round_.loadgen.versions)} for round {round_.round}",
            found=version,
            hint="make setup",
        )
    return version
