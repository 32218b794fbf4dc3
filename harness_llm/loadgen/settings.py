"""Comparison of LoadGen's settings with the intended ones: LoadGen accepts any user.conf without an error."""

from collections.abc import Mapping
from typing import Any

from harness_llm.config.rules import BenchmarkRules, Round
from harness_llm.config.user_conf import KEYS
from harness_llm.errors import ConfigError
from harness_llm.paths import installed_by

NS_PER_MS = 1_000_000
# LoadGen 5.x reads these but has no such attributes in TestSettings; `check` reads their effect in the detail log.
_NOT_IN_5X = frozenset(
    {"sample_concatenate_permutation", "accuracy_sample_count_override", "accuracy_log_sampling_target"}
)


def expected_settings(
    values: Mapping[str, float], *, scenario: str, loadgen_scenario: str, rules: BenchmarkRules, round_: Round
) -> dict[str, int | float]:
    """Return TestSettings' attributes after LoadGen has read a user.conf with `values`."""
    expected: dict[str, int | float] = {
        "use_token_latencies": int(rules.token_latencies),
        "sample_concatenate_permutation": 1,
        "min_duration_ms": round_.min_duration_ms,
        "performance_sample_count_override": rules.samples,
        **round_.loadgen.seeds,
    }
    if limit := rules.latency_ms.get(scenario):
        expected["ttft_latency"] = limit.ttft * NS_PER_MS
        expected["tpot_latency"] = limit.tpot * NS_PER_MS
    if loadgen_scenario == "Server":
        expected["server_target_latency_ns"] = rules.answer_latency_ms.get(scenario, 0) * NS_PER_MS
    if rules.accuracy_samples is not None:
        expected["accuracy_sample_count_override"] = rules.accuracy_samples
    keys = KEYS[loadgen_scenario]
    return expected | {keys[name].attribute: value * keys[name].factor for name, value in values.items()}


def compare(settings: Any, expected: Mapping[str, int | float]) -> None:
    """Raise ConfigError if `settings`, a mlperf_loadgen.TestSettings, differs from `expected`."""
    seen = [name for name in expected if name not in _NOT_IN_5X or hasattr(settings, name)]
    wrong = {name: getattr(settings, name) for name in seen if getattr(settings, name) != expected[name]}
    if not wrong:
        return
    seeds = [name for name in wrong if name.endswith("_rng_seed")]
    raise ConfigError(
        "LoadGen's seeds differ from the round's" if seeds else "LoadGen's settings differ from user.conf",
        where=", ".join(seeds or wrong),
        expected=", ".join(f"{name} = {expected[name]}" for name in wrong),
        found=", ".join(f"{name} = {value}" for name, value in wrong.items()),
        hint=f"to install the round's LoadGen: {installed_by('setup')}" if seeds else "",
    )
