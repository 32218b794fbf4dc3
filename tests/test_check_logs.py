"""Rules on LoadGen's logs: each broken, one by one."""

import os

import pytest
from trees import (
    ACCURACY,
    CLOSED,
    OPEN,
    PERFORMANCE,
    ROUND,
    RULES,
    SERVER,
    VARIANT,
    Case,
    R,
    accuracy_log,
    found,
    performance_log,
    write_log,
    write_result,
)

LOG_CASES = [
    Case(
        "no performance log",
        "open",
        lambda h: (h.result / PERFORMANCE).unlink(),
        (f"error log {OPEN}/{PERFORMANCE}",),
    ),
    Case("no accuracy log", "open", lambda h: (h.result / ACCURACY).unlink(), (f"error log {OPEN}/{ACCURACY}",)),
    Case(
        "neither log",
        "open",
        lambda h: ((h.result / PERFORMANCE).unlink(), (h.result / ACCURACY).unlink()),
        (f"error log {OPEN}/{PERFORMANCE}", f"error log {OPEN}/{ACCURACY}"),
    ),
    Case(
        "truncated log",
        "open",
        lambda h: os.truncate(h.result / PERFORMANCE, 1000),
        (f"error log {OPEN}/{PERFORMANCE}:9",),
    ),
    Case(
        "accuracy log in the place of performance",
        "open",
        lambda h: write_log(h.benchmark / "Offline/performance/run_1", accuracy_log("Offline")),
        (
            f"error log-mode {R}/tiny/Offline/{PERFORMANCE}",
            f"error loadgen-valid {R}/tiny/Offline/{PERFORMANCE}",
            f"error metric {R}/tiny/Offline/{PERFORMANCE}",
        ),
    ),
    Case(
        "Offline logs in Server",
        "closed",
        lambda h: [
            write_log(h.result / folder, log("Offline"))
            for folder, log in (("performance/run_1", performance_log), ("accuracy", accuracy_log))
        ],
        (
            f"error log-scenario {SERVER}/{PERFORMANCE}",
            f"error log-scenario {SERVER}/{ACCURACY}",
            *[f"error latency-settings {SERVER}/{PERFORMANCE}"] * 2,
        ),
    ),
    Case(
        "error in the performance log",
        "open",
        lambda h: h.performance(errors=("queue overrun",)),
        (f"error loadgen-errors {OPEN}/{PERFORMANCE}",),
    ),
    Case(
        "error in the accuracy log",
        "open",
        lambda h: h.accuracy(errors=("queue overrun",)),
        (f"error loadgen-errors {OPEN}/{ACCURACY}",),
    ),
    Case(
        "LoadGen of another round",
        "open",
        lambda h: h.performance(loadgen_version="5.1.2 @ 0c1353faf7"),
        (f"warning loadgen-version {OPEN}/{PERFORMANCE}",),
    ),
]

PERFORMANCE_CASES = [
    Case(
        "INVALID",
        "closed",
        lambda h: h.performance("Offline", result_validity="INVALID", result_min_duration_met=False),
        (f"error loadgen-valid {CLOSED}/Offline/{PERFORMANCE}",),
    ),
    Case(
        "no early stopping",
        "open",
        lambda h: h.performance(early_stopping_met=False),
        (f"error early-stopping {OPEN}/{PERFORMANCE}",),
    ),
    Case(
        "no early stopping in Offline",
        "open",
        lambda h: h.performance("Offline", early_stopping_met=False),
        (),
    ),
    *(
        Case(
            f"wrong {name}",
            "open",
            lambda h, n=name: h.performance(**{f"effective_{n}": 1}),
            (f"error seeds {OPEN}/{PERFORMANCE}",),
        )
        for name in ROUND.loadgen.seeds
    ),
    Case(
        "a key is missing",
        "open",
        lambda h: h.performance(effective_qsl_rng_seed=None),
        (f"error seeds {OPEN}/{PERFORMANCE}",),
    ),
    Case(
        "short",
        "open",
        lambda h: h.performance(effective_min_duration_ms=599_999),
        (f"error min-duration {OPEN}/{PERFORMANCE}",),
    ),
    Case(
        "no tokens",
        "open",
        lambda h: h.performance("Offline", requested_use_token_latencies=False),
        (f"error token-latencies {R}/tiny/Offline/{PERFORMANCE}",),
    ),
    Case(
        "no equal issue",
        "open",
        lambda h: h.performance(effective_sample_concatenate_permutation=False),
        (f"warning equal-issue {OPEN}/{PERFORMANCE}",),
    ),
    Case(
        "few samples",
        "open",
        lambda h: h.performance(effective_performance_sample_count=RULES.samples - 1),
        (f"error performance-samples {OPEN}/{PERFORMANCE}",),
    ),
    Case(
        "small query in closed",
        "closed",
        lambda h: h.performance("Offline", effective_samples_per_query=RULES.samples - 1),
        (f"error samples-per-query {CLOSED}/Offline/{PERFORMANCE}",),
    ),
    Case(
        "small query in open",
        "open",
        lambda h: h.performance("Offline", effective_samples_per_query=RULES.samples - 1),
        (),
    ),
    *(
        Case(
            f"p99 {key}",
            "open",
            lambda h, k=key, v=value: h.performance(**{k: v}),
            (f"error latency {OPEN}/{PERFORMANCE}",) if bad else (),
        )
        for key, value, bad in (
            ("result_first_token_99.00_percentile_latency_ns", 2_000_000_000, True),
            ("result_first_token_99.00_percentile_latency_ns", 1_999_999_999, False),
            ("result_first_token_99.00_percentile_latency_ns", None, True),
            ("result_time_per_output_token_99.00_percentile_ns", 200_000_000, True),
            ("result_time_per_output_token_99.00_percentile_ns", 199_999_999, False),
        )
    ),
    Case(
        "other latency limit",
        "open",
        lambda h: h.performance(requested_server_ttft_latency=3_000_000_000),
        (f"warning latency-settings {OPEN}/{PERFORMANCE}",),
    ),
    Case(
        "other latency limit in closed",
        "closed",
        lambda h: h.performance(requested_server_ttft_latency=3_000_000_000),
        (f"error latency-settings {SERVER}/{PERFORMANCE}",),
    ),
    *(
        Case(
            f"Interactive slower than its limits in {division}",
            division,
            lambda h: [
                write_result(h.path, h.benchmark.name, "Interactive"),
                write_log(
                    h.benchmark / "Interactive/performance/run_1",
                    performance_log("Interactive") | {"result_first_token_99.00_percentile_latency_ns": 450_000_000},
                ),
            ],
            (f"{severity} latency {R}/{name}/Interactive/{PERFORMANCE}",),
        )
        for division, name, severity in (("closed", VARIANT, "error"), ("open", "tiny", "warning"))
    ),
    Case(
        "Server log in Interactive",
        "closed",
        lambda h: [
            write_result(h.path, VARIANT, "Interactive"),
            write_log(
                h.benchmark / "Interactive/performance/run_1",
                performance_log("Server") | {"result_first_token_99.00_percentile_latency_ns": 1_900_000_000},
            ),
        ],
        (
            *[f"error latency-settings {CLOSED}/Interactive/{PERFORMANCE}"] * 2,
            f"error latency {CLOSED}/Interactive/{PERFORMANCE}",
        ),
    ),
]


@pytest.mark.parametrize("case", [*LOG_CASES, *PERFORMANCE_CASES], ids=lambda case: case.id)
def test_a_broken_rule_is_found_and_nothing_else(tmp_path, case):
    assert found(case, tmp_path) == sorted(case.findings)
