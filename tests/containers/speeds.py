"""Published rates as settings of the replay engine: the step time at which the batch reaches the rate."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workspaces import edit

from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.engine_config import load_config
from harness_llm.config.request import newest_round
from harness_llm.config.rules import BenchmarkRules, load_round
from harness_llm.fileio import read_yaml
from harness_llm.paths import CHECKOUT, Workspace

_TABLE: dict[str, Any] = read_yaml(Path(__file__).with_name("speeds.yaml"))
_PROMPT_TOKENS = 100  # of a stand-in, about
_PREFILL_SHARE = 1 / 3  # of the time that a sequence takes
_SPREAD = 0.2  # short runs: the longest answer of 512 is 1.8 times the mean
_SINGLE = "SingleStream"


def cases() -> list[tuple[str, str]]:
    """Every benchmark with every GPU that the table has for it."""
    return [(name, gpu) for name, facts in _TABLE.items() for gpu in facts["tokens_per_s"]]


def write_speeds(benchmark: str, gpu: str, checkout: Path) -> None:
    """Give a checkout the replay engine's settings for `benchmark` on `gpu`, and LoadGen's targets as fast as these."""
    facts = _TABLE[benchmark]
    variants = load_benchmark(benchmark, Workspace(CHECKOUT)).variants
    rules = next(iter(load_round(newest_round(variants)).variants(variants).values()))
    for scenario, rate in facts["tokens_per_s"][gpu].items():
        settings = replay_config(benchmark, gpu, scenario, rate, rules)
        own = load_benchmark(benchmark, Workspace(CHECKOUT))
        name = own.engine_scenarios.get(scenario, scenario).lower()
        edit(checkout / "models" / own.settings / f"{name}_{gpu}.yaml", lambda file, new=settings: file.update(new))
    conf = checkout / "code" / f"user_{gpu}.conf"
    names = {rules.loadgen_model(scenario) for scenario in facts["tokens_per_s"][gpu]}
    conf.write_text("".join(_sped_up(conf.read_text().splitlines(keepends=True), names, facts["faster"])))


def replay_config(benchmark: str, gpu: str, scenario: str, rate: float, rules: BenchmarkRules) -> dict[str, Any]:
    """The section for a node that makes `rate` tokens/s: Offline with full batches, Server at half the token limit."""
    facts = _TABLE[benchmark]
    found = load_config(load_benchmark(benchmark, Workspace(CHECKOUT)), scenario, gpu, (), Workspace(CHECKOUT))
    step, own_rate = facts["step_ms"] / 1000, rate / found.replicas
    if scenario == _SINGLE:
        sequence = 0.0
    elif limit := rules.latency_ms.get(scenario):
        sequence = (limit.tpot / 2000 - step) / (own_rate * limit.tpot / 2000)
    else:
        sequence = max(1 / own_rate - step / found.llm_config["max_num_seqs"], 0.0)
    prefill = sequence * _PREFILL_SHARE * facts["output_tokens"] / _PROMPT_TOKENS  # seconds of a prompt's token
    pace = {
        "prefill_tokens_per_s": 1 / prefill if prefill else 0,
        "step_s": step,
        "step_s_per_sequence": sequence * (1 - _PREFILL_SHARE),
        "output_tokens": facts["output_tokens"],
        "output_spread": _SPREAD,
        "speeds": [facts["faster"]],
    }
    return {"replay_config": pace}


def _sped_up(lines: list[str], models: set[str], faster: float) -> Iterator[str]:
    """The lines of a user.conf with the targets of `models` multiplied, times divided."""
    for line in lines:
        found = re.match(r"([^.\s]\S*)\.(\w+)\.(target_qps|target_latency) = (\S+)", line)
        if found and found[1] in models:
            factor = faster if found[3] == "target_qps" else 1 / faster
            yield f"{found[1]}.{found[2]}.{found[3]} = {float(found[4]) * factor:g}\n"
        else:
            yield line
