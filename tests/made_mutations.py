"""Mutations of made trees, for cases without a published tree: bounds, every field, the open division."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mutations import MADE_CLOSED, MADE_OPEN, Base, Break, Mutation, answer, fields, logged, size, text, unlogged, words
from trees import (
    ACCURACY,
    CLOSED,
    DESCRIPTION,
    OPEN,
    PERFORMANCE,
    ROUND,
    RULES,
    SCORES,
    SCORES_FILE,
    SERVER,
    VARIANT,
    R,
    accuracy_log,
    answers,
    hashed,
    performance_log,
    rename,
    to_hex,
    write_log,
    write_result,
)

IN_OPEN, IN_CLOSED = "open/Acme", "closed/Acme"
TINY, OPEN_SERVER, CLOSED_SERVER = f"{IN_OPEN}/{R}/tiny", f"{IN_OPEN}/{OPEN}", f"{IN_CLOSED}/{SERVER}"
OPEN_LOG, CLOSED_LOG = f"{OPEN_SERVER}/{PERFORMANCE}", f"{CLOSED_SERVER}/{PERFORMANCE}"
SYSTEM = f"{IN_OPEN}/{DESCRIPTION}"
MEASUREMENTS = f"{OPEN_SERVER}/measurements.json"
OPEN_SCORES, CLOSED_SCORES = f"{OPEN_SERVER}/{SCORES_FILE}", f"{CLOSED_SERVER}/{SCORES_FILE}"
TEST06 = f"{CLOSED_SERVER}/TEST06/accuracy/mlperf_log_accuracy.json"
VERDICT = "TEST06/verify_accuracy.txt"


def in_open(rule: str, place: str, breaks: Break, severity: str = "error", *at: str) -> Mutation:
    return Mutation(rule, place, breaks, base=MADE_OPEN, at=at, severity=severity)


def in_closed(rule: str, place: str, breaks: Break, severity: str = "error", *at: str) -> Mutation:
    return Mutation(rule, place, breaks, base=MADE_CLOSED, at=at, severity=severity)


def allowed(place: str, breaks: Break, base: Base = MADE_OPEN) -> Mutation:
    return Mutation("", place, breaks, base=base)


def renamed(name: str) -> Break:
    return lambda path: rename(path, path.with_name(name))


def scores(document: object) -> Break:
    return text(hashed(document))


def log_of(scenario: str, folder: str, log: Callable[[str], dict]) -> Break:
    """Replace the log in `folder` of a result."""
    return lambda result: write_log(result / folder, log(scenario))


def logs_of(scenario: str) -> Break:
    """Replace both logs of a result."""
    parts = (("performance/run_1", performance_log), ("accuracy", accuracy_log))
    return lambda result: [log_of(scenario, folder, log)(result) for folder, log in parts]


def interactive(of: str, **values: object) -> Break:
    """Add an Interactive result whose performance log is that of scenario `of`, changed."""
    changed = {name.replace("__", "."): value for name, value in values.items()}

    def add(benchmark: Path) -> None:
        home = benchmark.parents[2]
        write_result(home, benchmark.name, "Interactive")
        write_log(benchmark / "Interactive/performance/run_1", performance_log(of) | changed)

    return add


def widened(entry: dict) -> dict:
    """An answer with int64 ids, as SUTs log them that need -d int64 of the official script."""
    data = {name: bytes.fromhex(entry[name]) for name in ("data", "token_data")}
    ids = {name: np.frombuffer(text_, np.int32).astype(np.int64) for name, text_ in data.items()}
    return entry | {name: wide.tobytes().hex() for name, wide in ids.items()}


def two_ends(entry: dict) -> dict:
    return entry | {"data": to_hex([entry["qsl_idx"] + 1000, 7, 2, 2])}


FILES = [
    allowed(f"{IN_CLOSED}/documentation/calibration.md", renamed("calibration_vllm.md"), MADE_CLOSED),
    allowed(f"{IN_CLOSED}/documentation/system_architecture.md", renamed("bandwidth.md"), MADE_CLOSED),
    in_open("benchmark", f"{IN_OPEN}/model_mapping.json", fields(tiny="llama2-70b-99"), "error", TINY),
    in_open("benchmark", f"{IN_OPEN}/model_mapping.json", Path.unlink, "error", TINY),
    in_open("model-mapping", f"{IN_OPEN}/model_mapping.json", text("{"))._replace(also=(f"benchmark {TINY}",)),
    allowed(f"{TINY}/Offline", shutil.rmtree),
    in_closed(
        "scenarios", CLOSED_SERVER, lambda p: shutil.copytree(p, p.with_name("MultiStream")), "error",
        f"{IN_CLOSED}/{CLOSED}/MultiStream",
    )._replace(also=tuple(f"log-scenario {IN_CLOSED}/{CLOSED}/MultiStream/{log}" for log in (PERFORMANCE, ACCURACY))),
    allowed(f"{IN_CLOSED}/{DESCRIPTION}", fields(system_type="datacenter,edge"), MADE_CLOSED),
    in_open("scenario-name", OPEN_SERVER, renamed("Bulk"), "error", f"{TINY}/Bulk"),
    in_open(
        "power", f"{OPEN_SERVER}/performance/power", Path.mkdir, "error",
        *(f"{OPEN_SERVER}/performance/power/{name}" for name in ROUND.power["power"].required),
        *(f"{OPEN_SERVER}/performance/ranging/{name}" for name in ROUND.power["ranging"].required),
        f"{OPEN_SERVER}/performance/run_1/spl.txt",
    )._replace(also=(f"system-power {SYSTEM}",)),
    allowed(f"{IN_OPEN}/src/core", size(50 * 2**20)),
    allowed("to do.txt", text("x")),
]  # fmt: skip

SYSTEMS = [
    in_closed("system-file", f"{IN_CLOSED}/{DESCRIPTION}", text("{")),
    in_open("system-file", SYSTEM, text("[]")),
    *(
        in_open("system-field", SYSTEM, fields(**{name: None}))
        for name in (*ROUND.system.filled, *ROUND.system.present)
    ),
    *(in_open("system-field", SYSTEM, fields(**{name: ""})) for name in ROUND.system.filled),
    allowed(SYSTEM, fields(status="RDI")),
]

MEASURED = [
    in_open("measurements-file", MEASUREMENTS, text("")),
    *(
        in_open("measurements-field", MEASUREMENTS, fields(**{name: value}))
        for name in ROUND.measurements_fields
        for value in ("", None)
    ),
    in_open("measurements-field", MEASUREMENTS, text("{}")),
    *(in_open("measurements-beside", f"{OPEN_SERVER}/{name}", Path.unlink) for name in ROUND.measurements_files),
    *(in_open("measurements-beside", f"{OPEN_SERVER}/{name}", text("")) for name in ROUND.measurements_files),
    allowed(f"{OPEN_SERVER}/user.conf", text("*.Server.ttft_latency = 3000\n")),
    in_open("placeholder", MEASUREMENTS, fields(weight_data_types="<fp8>"), "warning", f"{MEASUREMENTS}:5"),
    in_open("placeholder", MEASUREMENTS, fields(weight_data_types="<n> bits"), "warning", f"{MEASUREMENTS}:5"),
    allowed(f"{OPEN_SERVER}/README.md", text('export TOKEN="<token>"\n')),
]

ACCURACIES = [
    in_open("accuracy-hash", OPEN_SCORES, text(f"{SCORES}\n"), "warning"),
    allowed(f"{OPEN_SERVER}/accuracy/mlperf_log_accuracy.json", size(10240)),
    *(
        in_closed("accuracy-metric", CLOSED_SCORES, scores(str(SCORES).replace(old, new)))
        for old, new in (("44.5", "np.float64(44.5)"), ("295.1", "nan"), ("'rouge2'", "'rogue2'"), ("28.7", "28.7.1"))
    ),
    in_open("accuracy-metric", OPEN_SCORES, scores(str(SCORES).replace("295.1", "nan"))),
    allowed(CLOSED_SCORES, scores(str(SCORES).replace("44.5", "'44.5'")), MADE_CLOSED),
    *(
        in_closed("accuracy-gate", CLOSED_SCORES, scores(SCORES | {metric: value}))
        for metric, value in (
            ("rouge1", 44.3867),
            ("rouge2", 22.0131),
            ("rougeL", 28.5875),
            ("tokens_per_sample", 265.0),
            ("tokens_per_sample", 323.9),
        )
    ),
    allowed(OPEN_SCORES, scores(SCORES | {"rouge1": 1.0})),
    in_open(
        "accuracy-samples",
        f"{OPEN_SERVER}/{ACCURACY}",
        logged(effective_accuracy_sample_count=0, qsl_reported_total_count=5000),
    ),
]

COMPLIANCE = [
    allowed(f"{OPEN_SERVER}/TEST06", shutil.rmtree),
    in_closed("compliance-verdict", f"{CLOSED_SERVER}/{VERDICT}", Path.unlink, "error", f"{CLOSED_SERVER}/{VERDICT}"),
    *(
        in_open("compliance-verdict", f"{OPEN_SERVER}/{VERDICT}", words(f"{line}: True", f"{line}: False"), "warning")
        for line in ("First token check pass", "EOS check pass", "Sample length check pass")
    ),
    in_closed("test06-log", TEST06, text("[]"), "warning"),
    in_closed("test06-log", TEST06, text("[\n\n...\n\n]"), "warning"),
    *(allowed(TEST06, text(json.dumps(answers("Server", count=count))), MADE_CLOSED) for count in (89, 108)),
    allowed(TEST06, text(json.dumps([*map(widened, answers("Server"))])), MADE_CLOSED),
    in_closed("test06-log", TEST06, text(json.dumps([widened(two_ends(entry)) for entry in answers("Server")]))),
    in_closed("test06-log", TEST06, answer(data=to_hex([1000, 7, 2, 2]))),
    in_open(
        "test06-log",
        f"{OPEN_SERVER}/TEST06/accuracy/mlperf_log_accuracy.json",
        answer(data=to_hex([1000, 7, 2, 2])),
        "warning",
    ),
    # The official script accepts an end-of-sequence inside of an answer.
    in_closed("test06-log", TEST06, answer(data=to_hex([1000, 2, 8, 2])), "warning"),
    in_closed("test06-log", TEST06, answer(token_data=to_hex([9]))),
]

LOGS = [
    in_open("log", f"{OPEN_SERVER}/{ACCURACY}", Path.unlink),
    in_open("log", OPEN_LOG, lambda path: os.truncate(path, 1000), "error", f"{OPEN_LOG}:9"),
    in_open(
        "log-mode", f"{TINY}/Offline", log_of("Offline", "performance/run_1", accuracy_log), "error",
        f"{TINY}/Offline/{PERFORMANCE}",
    )._replace(also=tuple(f"{rule} {TINY}/Offline/{PERFORMANCE}" for rule in ("loadgen-valid", "metric"))),
    in_closed(
        "log-scenario", CLOSED_SERVER,
        logs_of("Offline"),
        "error", CLOSED_LOG, f"{CLOSED_SERVER}/{ACCURACY}",
    )._replace(also=(f"latency-settings {CLOSED_LOG}",) * 2),
    allowed(OPEN_LOG, lambda path: path.write_text(f"{path.read_text()}\n")),
    allowed(f"{TINY}/Offline/{PERFORMANCE}", logged(early_stopping_met=False)),
    in_open("seeds", OPEN_LOG, unlogged("effective_qsl_rng_seed")),
    allowed(f"{TINY}/Offline/{PERFORMANCE}", logged(effective_samples_per_query=RULES.samples - 1)),
]  # fmt: skip

LATENCIES = [
    in_open("latency", OPEN_LOG, logged(result_first_token_99__00_percentile_latency_ns=2_000_000_000)),
    allowed(OPEN_LOG, logged(result_first_token_99__00_percentile_latency_ns=1_999_999_999)),
    in_open("latency", OPEN_LOG, unlogged("result_first_token_99.00_percentile_latency_ns")),
    in_open("latency", OPEN_LOG, logged(result_time_per_output_token_99__00_percentile_ns=200_000_000)),
    allowed(OPEN_LOG, logged(result_time_per_output_token_99__00_percentile_ns=199_999_999)),
    in_open("latency-settings", OPEN_LOG, logged(requested_server_ttft_latency=3_000_000_000), "warning"),
    in_closed("latency-settings", CLOSED_LOG, logged(requested_server_ttft_latency=3_000_000_000)),
    *(
        Mutation(
            "latency", f"{home}/{R}/{name}",
            interactive("Interactive", result_first_token_99__00_percentile_latency_ns=450_000_000),
            base=base, at=(f"{home}/{R}/{name}/Interactive/{PERFORMANCE}",), severity=severity,
        )
        for home, name, base, severity in (
            (IN_CLOSED, VARIANT, MADE_CLOSED, "error"),
            (IN_OPEN, "tiny", MADE_OPEN, "warning"),
        )
    ),
    Mutation(
        "latency", f"{IN_CLOSED}/{CLOSED}",
        interactive("Server", result_first_token_99__00_percentile_latency_ns=1_900_000_000),
        base=MADE_CLOSED, at=(f"{IN_CLOSED}/{CLOSED}/Interactive/{PERFORMANCE}",),
        also=(f"latency-settings {IN_CLOSED}/{CLOSED}/Interactive/{PERFORMANCE}",) * 2,
    ),
]  # fmt: skip

MADE = [*FILES, *SYSTEMS, *MEASURED, *ACCURACIES, *COMPLIANCE, *LOGS, *LATENCIES]
