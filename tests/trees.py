"""Complete submission trees that break no rule, and changes of their files."""

import json
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from harness_llm.config.rules import BenchmarkRules, Round, load_round, round_names
from harness_llm.evaluate.accuracy_file import render


class Kind(NamedTuple):
    """What a tree is of."""

    round: Round
    variant: str

    @property
    def rules(self) -> BenchmarkRules:
        return self.round.benchmark(self.variant)

    def place(self, template: str, benchmark: str, scenario: str) -> str:
        return template.format(system=SYSTEM, benchmark=benchmark, scenario=scenario)


ROUND = load_round("v6.1")
VARIANT = "llama2-70b-99.9"
LLAMA2 = Kind(ROUND, VARIANT)
RULES = LLAMA2.rules
SUBMITTER, SYSTEM = "Acme", "2xCPU"
SECOND_NS = 10**9

ALL_SCENARIOS = ("Offline", "Server", "Interactive")
PERFORMANCE = "performance/run_1/mlperf_log_detail.txt"
ACCURACY = "accuracy/mlperf_log_detail.txt"
SCORES_FILE = "accuracy/accuracy.txt"
DESCRIPTION = f"systems/{SYSTEM}.json"

R = f"results/{SYSTEM}"
CLOSED = f"{R}/{VARIANT}"
SERVER = f"{CLOSED}/Server"
OPEN = f"{R}/tiny/Server"

EVERY_KIND = [
    pytest.param(Kind(round_, variant), category, id=f"{round_.round}-{variant}-{category}")
    for round_ in map(load_round, round_names())
    for variant, rules in round_.benchmarks.items()
    for category in rules.scenarios
]

SCORES = {"rouge1": 44.5, "rouge2": 22.1, "rougeL": 28.7, "gen_len": 28560284, "tokens_per_sample": 295.1}


def scenarios_of(kind: Kind, category: str) -> tuple[str, ...]:
    """All that closed takes."""
    rules = kind.rules.scenarios[category]
    return (*rules.required, *rules.optional)


def build_tree(
    root: Path, division: str, scenarios=("Offline", "Server"), kind: Kind = LLAMA2, category: str = "datacenter"
) -> Path:
    """A tree of one benchmark; in open it has a name of its own."""
    benchmark = "tiny" if division == "open" else kind.variant
    home = root / division / SUBMITTER
    write_json(home / "systems" / f"{SYSTEM}.json", system_description(division, category))
    write(home / kind.round.layout.source / benchmark / "README.md", "How to run it.\n")
    if division == "open":
        write_json(home / "model_mapping.json", {benchmark: kind.variant})
    else:
        write(home / "documentation" / "calibration.md", "FP8, scales from the calibration set.\n")
        write(home / "documentation" / "system_architecture.md", "Two NICs of 100 Gbit/s each.\n")
    for scenario in scenarios:
        write_result(home, benchmark, scenario, kind)
    return root


def write_result(home: Path, benchmark: str, scenario: str, kind: Kind = LLAMA2) -> None:
    layout = kind.round.layout
    measurements = home / kind.place(layout.measurements, benchmark, scenario)
    write(measurements.with_name("README.md"), "What was run.\n")
    write(measurements.with_name("user.conf"), f"*.{kind.round.scenarios[scenario]}.min_duration = 600000\n")
    write_json(measurements, dict.fromkeys(kind.round.measurements_fields, "as written"))
    folder = home / "results" / SYSTEM / benchmark / scenario
    write_log(folder / "performance/run_1", performance_log(scenario, kind))
    write_log(folder / "accuracy", accuracy_log(scenario, kind))
    write(folder / "accuracy/mlperf_log_accuracy.json", "[\n\n...\n\n]\n")
    write(folder / "accuracy/accuracy.txt", f"\nResults\n\n{render(passing_scores(kind))}\nhash={'0' * 64}\n")
    for test in kind.rules.compliance:
        write_test(home / kind.place(layout.compliance, benchmark, scenario) / test, scenario, kind)


def passing_scores(kind: Kind) -> dict[str, float]:
    """Just above every gate; the official checker's are products with rounding errors."""
    below = {metric: bound * 0.9999 for metric, bound in kind.rules.limits.items()}
    return {metric: bound * 1.0001 for metric, bound in kind.rules.gates.items()} | below


def write_test(folder: Path, scenario: str, kind: Kind) -> None:
    """A run of a compliance test that passes."""
    facts = kind.round.compliance[folder.name]
    first = "Skipped" if scenario == "Offline" else "True"
    verdicts = {
        "TEST06": f"First token check pass: {first}\nEOS check pass: True\nSample length check pass: True\n",
        "TEST07": f"Accuracy score: {facts.bounds.get('accuracy_threshold')}\nTEST PASS\n",
        "TEST09": "TEST PASS\n",
    }
    write(folder / facts.verdict, verdicts[folder.name])
    tokens = facts.bounds.get("min_output_tokens", 0) + 1
    logs = {
        "mlperf_log_accuracy.json": json.dumps(answers(scenario, kind)),
        "mlperf_log_detail.txt": log_text(performance_log(scenario, kind, tokens)),
    }
    for place, name in facts.packed.items():
        write(folder / place, logs.get(name, "Result is : VALID\n"))


def system_description(division: str, category: str = "datacenter") -> dict[str, str]:
    fields = dict.fromkeys(ROUND.system.filled, "N/A") | dict.fromkeys(ROUND.system.present, "")
    return fields | {
        "division": division,
        "submitter": SUBMITTER,
        "system_type": category,
        "status": "available",
        "number_of_nodes": "1",
        "accelerators_per_node": "0",
    }


def settings(scenario: str, mode: str, kind: Kind = LLAMA2) -> dict:
    """What LoadGen logs of its settings before either kind of run."""
    offline, rules = scenario == "Offline", kind.rules
    limit = rules.latency_ms.get(scenario)
    tokens = {f"requested_server_{name}_latency": int(bound * 10**6) for name, bound in limit or ()}
    return {
        "loadgen_version": f"{kind.round.loadgen.version} @ 0000000000",
        "sut_name": "PySUT",
        "qsl_reported_total_count": rules.accuracy_samples or rules.samples,
        "requested_use_token_latencies": rules.token_latencies,
        **tokens,
        "effective_scenario": kind.round.scenarios[scenario],
        "effective_test_mode": mode,
        "effective_samples_per_query": 33000 if offline else 1,
        "effective_target_qps": 50,
        "effective_target_latency_ns": int(rules.answer_latency_ms.get(scenario, 0) * 10**6),
        "effective_min_duration_ms": kind.round.min_duration_ms,
        "effective_min_query_count": 1 if offline else 100,
        **{f"effective_{name}": seed for name, seed in kind.round.loadgen.seeds.items()},
        "effective_performance_sample_count": rules.samples,
        "effective_accuracy_sample_count": rules.accuracy_samples or rules.samples,
        "effective_sample_concatenate_permutation": True,
        "power_begin": "08-01-2026 12:00:00.000",
        "power_end": "08-01-2026 12:11:00.500",
    }


def accuracy_log(scenario: str, kind: Kind = LLAMA2) -> dict:
    return settings(scenario, "AccuracyOnly", kind) | {"num_errors": 0}


def performance_log(scenario: str, kind: Kind = LLAMA2, tokens: float = 295) -> dict:
    """The log of a valid run; `tokens` per answer."""
    offline = scenario == "Offline"
    verdict = {
        "result_validity": "VALID",
        "result_min_duration_met": True,
        "result_min_queries_met": True,
        "early_stopping_met": True,
        "early_stopping_ttft_result": " * Run successful.",
        "early_stopping_tpot_result": " * Run successful.",
    }
    offline_rates = {
        "result_samples_per_second": 50.0,
        "result_tokens_per_second": 50.0 * tokens,
        "result_inferred_tokens_per_second": 50.0 * 69,
    }
    server_rates = {
        "result_completed_samples_per_sec": 49.9,
        "result_completed_tokens_per_second": 49.9 * tokens,
        "result_inferred_completed_tokens_per_second": 49.9 * 69,
        "result_first_token_99.00_percentile_latency_ns": SECOND_NS // 5,
        "result_time_per_output_token_99.00_percentile_ns": SECOND_NS // 100,
        "early_stopping_latency_ss": SECOND_NS,
        "result_90.00_percentile_latency_ns": SECOND_NS,
    }
    return {
        **settings(scenario, "PerformanceOnly", kind),
        **verdict,
        "result_query_count": 1 if offline else 33000,
        "result_mean_latency_ns": SECOND_NS,
        "result_99.00_percentile_latency_ns": 2 * SECOND_NS,
        **(offline_rates if offline else server_rates),
        "num_errors": 0,
    }


def answers(scenario: str, kind: Kind = LLAMA2, count: int = 100) -> list[dict]:
    """The log of a TEST06 run: answers of three ids and an end-of-sequence."""
    entries = []
    for i in range(count):
        ids = [1000 + i, 7, 8, kind.rules.eos_ids[0]]
        first = {} if scenario == "Offline" else {"token_data": to_hex(ids[:1])}
        entries.append({"seq_id": i, "qsl_idx": i, "data": to_hex(ids), **first, "token_count": len(ids)})
    return entries


def to_hex(ids: list[int]) -> str:
    return b"".join(i.to_bytes(4, "little", signed=True) for i in ids).hex().upper()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_json(path: Path, document: object) -> None:
    write(path, json.dumps(document, indent=2))


def write_log(folder: Path, values: dict, errors: tuple[str, ...] = ()) -> None:
    """mlperf_log_detail.txt of `values` and then `errors`, and its summary."""
    write(folder / "mlperf_log_detail.txt", log_text(values, errors))
    write(folder / "mlperf_log_summary.txt", "Result is : VALID\n")


def log_text(values: dict, errors: tuple[str, ...] = ()) -> str:
    messages = [(key, value, False) for key, value in values.items()]
    messages += [("error_runtime", text, True) for text in errors]
    return "".join(
        f":::MLLOG {json.dumps({'key': key, 'value': value, 'metadata': {'is_error': error, 'is_warning': False}})}\n"
        for key, value, error in messages
    )


class Home:
    """A submitter's folder; `result` is its Server result."""

    def __init__(self, tree: Path, division: str):
        self.tree = tree
        self.path = tree / division / SUBMITTER
        self.benchmark = self.path / "results" / SYSTEM / ("tiny" if division == "open" else VARIANT)
        self.result = self.benchmark / "Server"

    def edit(self, name: str, fields: dict) -> None:
        """Change fields of a JSON file; None removes one."""
        path = self.path / name
        document = json.loads(path.read_text()) | fields
        write_json(path, {k: v for k, v in document.items() if v is not None})

    def performance(self, scenario: str = "Server", errors=(), **values) -> None:
        log = performance_log(scenario) | values
        log = {k: v for k, v in log.items() if v is not None}
        write_log(self.benchmark / scenario / "performance/run_1", log, errors)

    def accuracy(self, scenario: str = "Server", errors=(), **values) -> None:
        write_log(self.benchmark / scenario / "accuracy", accuracy_log(scenario) | values, errors)

    def scores(self, text: str) -> None:
        write(self.result / SCORES_FILE, text)


def rename(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def sparse(path: Path, size: int) -> None:
    write(path, "")
    os.truncate(path, size)


def hashed(scores: object) -> str:
    return f"{scores}\n\nhash={'0' * 64}\n"
