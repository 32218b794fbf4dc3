import json

import pytest
from golden import GOLDEN

from harness_llm.errors import ConfigError
from harness_llm.loadgen.logs import parse_detail, read_accuracy_log

MANGO = "v6.0/closed/MangoBoost/results/8xMI300X_2xEPYC_9534/llama2-70b-99.9"
AMD = "v6.0-wrong-seeds/closed/AMD/results/8xMI300X_2xEPYC_9575F/llama2-70b-99.9"
JETSON = "v6.0-wrong-seeds/open/NVIDIA/results/Jetson-Thor_TRT/llama3.1-8b-edge"
NVIDIA = "v4.1/closed/NVIDIA/results/DGX-H100_H100-SXM-80GBx8_TRT/gptj-99"


def performance(result):
    return parse_detail(GOLDEN / result / "performance/run_1/mlperf_log_detail.txt")


def accuracy(result):
    return parse_detail(GOLDEN / result / "accuracy/mlperf_log_detail.txt")


def write(path, *messages):
    """One detail log of (key, value[, level]) messages."""
    lines = []
    for key, value, *level in messages:
        metadata = {"is_error": level == ["error"], "is_warning": level == ["warning"]}
        lines.append(":::MLLOG " + json.dumps({"key": key, "value": value, "metadata": metadata}) + "\n")
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize(
    ("result", "facts"),
    [
        (
            f"{MANGO}/Offline",
            {
                "loadgen_version": "6.0.7",
                "scenario": "Offline",
                "mode": "PerformanceOnly",
                "valid": True,
                "invalid_reasons": [],
                "errors": [],
                "seeds": {
                    "qsl_rng_seed": 2465351861681999779,
                    "sample_index_rng_seed": 14276810075590677512,
                    "schedule_rng_seed": 3936089224930324775,
                },
                "tokens_per_second": 27598.7,
                "samples_per_second": 93.7826,
                "p99_ttft_ms": None,
                "p99_tpot_ms": None,
                "requested_ttft_ms": None,
                "requested_tpot_ms": None,
                "target_qps": 94,
                "performance_sample_count": 24576,
                "accuracy_sample_count": 24576,
                "samples_per_query": 62040,
                "query_count": 1,
                "min_query_count": 1,
                "min_duration_ms": 600000,
                "duration_s": pytest.approx(786.158),
                "early_stopping_met": True,
                "use_token_latencies": True,
                "sample_concatenate_permutation": True,
            },
        ),
        (
            f"{MANGO}/Server",
            {
                "scenario": "Server",
                "p99_ttft_ms": pytest.approx(1020.747109),
                "p99_tpot_ms": pytest.approx(183.865311),
                "tokens_per_second": 25463.1,
                "samples_per_second": 86.1258,
                "requested_ttft_ms": 2000,
                "requested_tpot_ms": 200,
                "query_count": 221184,
                "min_duration_ms": 2400000,
            },
        ),
        (f"{AMD}/Interactive", {"scenario": "Server", "requested_ttft_ms": 450, "requested_tpot_ms": 40}),
        (
            f"{JETSON}/SingleStream",
            {
                "scenario": "SingleStream",
                "samples_per_second": 0.244544,
                "tokens_per_second": 31.3015,
                "accuracy_sample_count": 5000,
            },
        ),
        (f"{NVIDIA}/Server", {"scenario": "Server", "p99_ttft_ms": None, "samples_per_second": 278.751}),
        (f"{NVIDIA}/Offline", {"scenario": "Offline", "samples_per_second": pytest.approx(293, rel=0.1)}),
    ],
)
def test_published_performance_logs_are_read(result, facts):
    log = performance(result)
    assert {name: getattr(log, name) for name in facts} == facts


def test_latency_percentiles_cover_complete_answers():
    percentiles = performance(f"{MANGO}/Server").latency_percentiles_ms
    assert list(percentiles) == [50, 90, 95, 97, 99, 99.9]
    assert percentiles[99] == pytest.approx(161191.73302)


@pytest.mark.parametrize("scenario", ["Offline", "Server"])
def test_accuracy_log_has_no_performance_verdict(scenario):
    log = accuracy(f"{MANGO}/{scenario}")
    assert (log.mode, log.valid, log.accuracy_sample_count) == ("AccuracyOnly", False, 24576)
    with pytest.raises(ConfigError, match="missing key in a LoadGen log") as error:
        _ = log.early_stopping_met
    assert error.value.where == str(log.path)
    assert error.value.expected == "early_stopping_met"


def test_errors_and_warnings_are_collected_and_the_last_value_of_a_key_counts(tmp_path):
    log = parse_detail(
        write(
            tmp_path / "detail.txt",
            ("a", 1),
            ("error_runtime", "queue lost", "error"),
            ("warning_generic_message", "slow", "warning"),
            ("a", 2),
        )
    )
    assert (log["a"], log.get("b"), log.get("b", 3)) == (2, None, 3)
    assert log.errors == ["error_runtime: queue lost"]
    assert log.warnings == ["warning_generic_message: slow"]


LATE, SHORT, EARLY = "result_perf_constraints_met", "result_min_duration_met", "early_stopping_met"


@pytest.mark.parametrize(
    ("missed", "sentence", "reasons"),
    [
        ([SHORT], "Min duration not met. ", ["Min duration not met."]),
        ([LATE, EARLY], "TTFT constrain not met: Reduce target QPS. ", ["TTFT constrain not met: Reduce target QPS."]),
        ([SHORT, EARLY], "Min duration not met. ", ["Min duration not met.", f"{EARLY} is false"]),
        ([EARLY], "", [f"{EARLY} is false"]),
        ([LATE, SHORT], "", [f"{LATE} is false", f"{SHORT} is false"]),
    ],
)
def test_each_reason_of_an_invalid_result_is_stated_once(tmp_path, missed, sentence, reasons):
    met = [(key, key not in missed) for key in (LATE, SHORT, "result_min_queries_met", EARLY)]
    log = parse_detail(
        write(tmp_path / "detail.txt", ("result_validity", "INVALID"), *met, ("result_invalid_reason", sentence))
    )
    assert not log.valid
    assert log.invalid_reasons == reasons


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (":::MLLOG", "invalid line"),
        (':::MLLOG {"key": "a", "val', "invalid line"),
        (':::MLLOG {"key": "a"}', "invalid line"),
        (":::MLLOG 7", "invalid line"),
        (':::MLLOG {"key": "a", "value": 1, "metadata": []}', "invalid line"),
        (':::MLLOG {"key": [], "value": 1, "metadata": {"is_error": false, "is_warning": false}}', "invalid line"),
        ("Segmentation fault", "invalid line"),
        ('{"key": "a", "value": 1, "metadata": {"is_error": false, "is_warning": false}}', "invalid line"),
        ("", "empty"),
    ],
)
def test_broken_detail_log_is_named(tmp_path, text, complaint):
    path = write(tmp_path / "detail.txt", ("a", 1)) if text else tmp_path / "detail.txt"
    with path.open("a") as file:
        file.write(text)
    with pytest.raises(ConfigError, match=complaint) as error:
        parse_detail(path)
    assert error.value.where == (f"{path}:2" if text else str(path))


@pytest.mark.parametrize(
    ("figure", "messages", "key"),
    [
        ("target_qps", {"effective_target_qps": "fast"}, "effective_target_qps: a number"),
        ("query_count", {"result_query_count": None}, "result_query_count: a number"),
        ("use_token_latencies", {"requested_use_token_latencies": 1}, "requested_use_token_latencies: true or false"),
        ("duration_s", {"power_begin": "noon", "power_end": "noon"}, "power_end: MM-DD-YYYY HH:MM:SS.mmm"),
        ("duration_s", {"power_begin": 1, "power_end": 2}, "power_end: MM-DD-YYYY HH:MM:SS.mmm"),
        (
            "samples_per_second",
            {"effective_scenario": "Batch"},
            "effective_scenario: Offline or Server or SingleStream",
        ),
        ("latency_percentiles_ms", {"result_50.00_percentile_latency_ns": "x"}, "result_50.00_percentile_latency_ns"),
    ],
)
def test_value_of_the_wrong_type_is_named(tmp_path, figure, messages, key):
    log = parse_detail(write(tmp_path / "detail.txt", *messages.items()))
    with pytest.raises(ConfigError, match="wrong value in a LoadGen log") as error:
        getattr(log, figure)
    assert (error.value.where, error.value.expected[: len(key)]) == (str(log.path), key)


@pytest.mark.parametrize(("counted", "rate"), [(True, 7.0), (False, None)])
def test_single_stream_logs_have_no_inferred_tokens(tmp_path, counted, rate):
    messages = {"effective_scenario": "SingleStream", "result_completed_tokens_per_second": 7.0}
    log = parse_detail(write(tmp_path / "detail.txt", *messages.items(), ("requested_use_token_latencies", counted)))
    assert log.tokens_per_second == rate


def test_missing_detail_log_is_named(tmp_path):
    with pytest.raises(ConfigError, match="unreadable LoadGen log"):
        parse_detail(tmp_path / "none.txt")


@pytest.mark.parametrize("scenario", ["Offline", "Server"])
def test_published_answers_are_read_as_token_ids(scenario):
    answers = read_accuracy_log(GOLDEN / MANGO / scenario / "TEST06/accuracy/mlperf_log_accuracy.json")
    assert len(answers) == 10
    assert all(len(a.ids) == a.token_count for a in answers)
    if scenario == "Offline":
        assert all(a.first is None for a in answers)
    else:
        assert all(a.first.tolist() == a.ids[:1].tolist() for a in answers)


def test_accuracy_log_without_token_counts_is_read(tmp_path):
    path = tmp_path / "accuracy.json"
    path.write_text('[\n{ "seq_id" : 3, "qsl_idx" : 9, "data" : "94020000FFFFFFFF" }\n]\n')
    (answer,) = read_accuracy_log(path)
    assert (answer.seq_id, answer.qsl_idx, answer.ids.tolist()) == (3, 9, [660, -1])
    assert (answer.token_count, answer.first) == (None, None)


ENTRY = '{ "seq_id" : 3, "qsl_idx" : 9, "data" : "%s", "token_count" : 1 }'


@pytest.mark.parametrize(
    "text",
    [
        f"[\n{ENTRY % '94020000'}",
        f"[\n{ENTRY % '9402'}\n]",
        f"[\n{ENTRY % 'xyz'}\n]",
        f"[\n{ENTRY % '94020000'},\n\n...\n\n]",
        '[{"seq_id" : 3}]',
        "",
    ],
)
def test_broken_accuracy_log_is_named(tmp_path, text):
    path = tmp_path / "accuracy.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="unreadable accuracy log") as error:
        read_accuracy_log(path)
    assert error.value.where == str(path)
