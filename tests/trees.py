"""Submission trees made from nothing, each a complete one that breaks no rule, and ways to break them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from harness_llm.check import Finding, check
from harness_llm.rules.rounds import load_round

ROUND = load_round("v6.1")
VARIANT = "llama2-70b-99.9"
RULES = ROUND.benchmark(VARIANT)
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

SCORES = {"rouge1": 44.5, "rouge2": 22.1, "rougeL": 28.7, "gen_len": 28560284, "tokens_per_sample": 295.1}


def build_tree(root: Path, division: str, scenarios=("Offline", "Server"), benchmark: str | None = None) -> Path:
    """A tree of one benchmark; in open it has a name of its own."""
    benchmark = benchmark or ("tiny" if division == "open" else VARIANT)
    home = root / division / SUBMITTER
    write_json(home / "systems" / f"{SYSTEM}.json", system_description(division))
    write(home / "src" / benchmark / "README.md", "How to run it.\n")
    if division == "open":
        write_json(home / "model_mapping.json", {benchmark: VARIANT})
    else:
        write(home / "documentation" / "calibration.md", "FP8, scales from the calibration set.\n")
    for scenario in scenarios:
        write_result(home / "results" / SYSTEM / benchmark / scenario, scenario)
    return root


def write_result(folder: Path, scenario: str) -> None:
    write(folder / "README.md", "What was run.\n")
    write(folder / "user.conf", f"*.{ROUND.scenarios[scenario]}.target_qps = 50\n")
    write_json(folder / "measurements.json", dict.fromkeys(ROUND.measurements_fields, "as written"))
    write_log(folder / "performance/run_1", performance_log(scenario))
    write_log(folder / "accuracy", accuracy_log(scenario))
    write(folder / "accuracy/mlperf_log_accuracy.json", "[\n\n...\n\n]\n")
    write(folder / "accuracy/accuracy.txt", f"\nResults\n\n{SCORES}\n\nhash={'0' * 64}\n")
    write_json(folder / "TEST06/accuracy/mlperf_log_accuracy.json", answers(scenario))
    first = "Skipped" if scenario == "Offline" else "True"
    write(
        folder / "TEST06/verify_accuracy.txt",
        f"First token check pass: {first}\nEOS check pass: True\nSample length check pass: True\n"
        "TEST06 verification complete\n",
    )


def system_description(division: str) -> dict[str, str]:
    fields = dict.fromkeys(ROUND.system.filled, "N/A") | dict.fromkeys(ROUND.system.present, "")
    return fields | {
        "division": division,
        "submitter": SUBMITTER,
        "system_type": "datacenter",
        "status": "available",
        "number_of_nodes": "1",
        "accelerators_per_node": "0",
    }


def settings(scenario: str, mode: str) -> dict:
    """What LoadGen logs of its settings before either kind of run."""
    offline = scenario == "Offline"
    limit = RULES.latency_ms.get(scenario)
    return {
        "loadgen_version": f"{ROUND.loadgen.versions[-1]} @ 0000000000",
        "sut_name": "PySUT",
        "qsl_reported_total_count": RULES.samples,
        "requested_use_token_latencies": True,
        **({} if offline else {"requested_server_ttft_latency": int(limit.ttft * 10**6)}),
        **({} if offline else {"requested_server_tpot_latency": int(limit.tpot * 10**6)}),
        "effective_scenario": ROUND.scenarios[scenario],
        "effective_test_mode": mode,
        "effective_samples_per_query": 33000 if offline else 1,
        "effective_target_qps": 50,
        "effective_target_latency_ns": 0,
        "effective_min_duration_ms": ROUND.min_duration_ms,
        "effective_min_query_count": 1 if offline else 100,
        **{f"effective_{name}": seed for name, seed in ROUND.loadgen.seeds.items()},
        "effective_performance_sample_count": RULES.samples,
        "effective_accuracy_sample_count": RULES.samples,
        "effective_sample_concatenate_permutation": True,
        "power_begin": "08-01-2026 12:00:00.000",
        "power_end": "08-01-2026 12:11:00.500",
    }


def accuracy_log(scenario: str) -> dict:
    return settings(scenario, "AccuracyOnly") | {"num_errors": 0}


def performance_log(scenario: str) -> dict:
    offline = scenario == "Offline"
    verdict = {
        "result_validity": "VALID",
        "result_min_duration_met": True,
        "result_min_queries_met": True,
        "early_stopping_met": True,
        "early_stopping_ttft_result": " * Run successful.",
        "early_stopping_tpot_result": " * Run successful.",
    }
    offline_rates = {"result_samples_per_second": 50.0, "result_tokens_per_second": 14750.0}
    server_rates = {
        "result_completed_samples_per_sec": 49.9,
        "result_completed_tokens_per_second": 14700.0,
        "result_first_token_99.00_percentile_latency_ns": SECOND_NS // 5,
        "result_time_per_output_token_99.00_percentile_ns": SECOND_NS // 50,
    }
    return {
        **settings(scenario, "PerformanceOnly"),
        **verdict,
        "result_query_count": 1 if offline else 33000,
        "result_mean_latency_ns": SECOND_NS,
        "result_99.00_percentile_latency_ns": 2 * SECOND_NS,
        **(offline_rates if offline else server_rates),
        "num_errors": 0,
    }


def answers(scenario: str, count: int = 100) -> list[dict]:
    """The log of a TEST06 run: answers of three ids and an end-of-sequence."""
    entries = []
    for i in range(count):
        ids = [1000 + i, 7, 8, RULES.eos_ids[0]]
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
    messages = [(key, value, False) for key, value in values.items()]
    messages += [("error_runtime", text, True) for text in errors]
    lines = [
        ":::MLLOG " + json.dumps({"key": key, "value": value, "metadata": {"is_error": error, "is_warning": False}})
        for key, value, error in messages
    ]
    write(folder / "mlperf_log_detail.txt", "\n".join(lines) + "\n")
    write(folder / "mlperf_log_summary.txt", "Result is : VALID\n")


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

    def measurements(self, **fields) -> None:
        self.edit(str((self.result / "measurements.json").relative_to(self.path)), fields)

    def test06(self, scenario: str, **fields) -> None:
        """Change fields of the first answer in TEST06's log."""
        entries = answers(scenario)
        entries[0] |= fields
        path = self.benchmark / scenario / "TEST06/accuracy/mlperf_log_accuracy.json"
        write_json(path, entries)


def rename(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def sparse(path: Path, size: int) -> None:
    write(path, "")
    os.truncate(path, size)


def hashed(scores: object) -> str:
    return f"{scores}\n\nhash={'0' * 64}\n"


class Case(NamedTuple):
    """How to break a tree, and what must be found: `severity rule path-below-the-submitter`."""

    id: str
    division: str
    breaks: Callable[["Home"], object]
    findings: tuple[str, ...]


def named(findings: list[Finding], division: str) -> list[str]:
    home = Path(division) / SUBMITTER
    return sorted(f"{f.severity} {f.rule} {Path(f.path).relative_to(home)}" for f in findings)


def found(case: Case, root: Path) -> list[str]:
    """Break a complete tree of Offline and Server, and name all that is found."""
    tree = build_tree(root, case.division)
    case.breaks(Home(tree, case.division))
    return named(check(tree, ROUND), case.division)
