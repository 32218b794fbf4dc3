"""Values in LoadGen's logs that LoadGen would not write: findings, whatever they are."""

import shutil
from pathlib import Path

import pytest
from trees import CLOSED, ROUND, Home, build_tree, performance_log, write, write_log

from harness_llm.checker.check import Finding, Severity, check
from harness_llm.submission.places import PROFILE

ODD = ("many", None, True)


@pytest.mark.parametrize("scenario", ["Offline", "Server"])
def test_no_value_breaks_the_check(tmp_path, scenario):
    benchmark = Home(build_tree(tmp_path, "open", [scenario]), "open").benchmark
    shutil.rmtree(benchmark / scenario / "TEST06")  # open owes none, and it takes the longest
    whole, folder = performance_log(scenario), benchmark / scenario / "performance/run_1"
    assert check(tmp_path, ROUND) == []
    for key in whole:
        for value in ODD:
            write_log(folder, whole | {key: value})
            assert isinstance(check(tmp_path, ROUND), list), (key, value)


def found(tree: Path, values: dict[str, object]) -> list[Finding]:
    build_tree(tree, "closed")
    Home(tree, "closed").performance(**values)
    return check(tree, ROUND)


@pytest.mark.parametrize(
    ("rule", "key", "value"),
    [
        ("min-duration", "effective_min_duration_ms", "long"),
        ("min-duration", "effective_min_duration_ms", True),
        ("seeds", "effective_qsl_rng_seed", "1"),
        ("early-stopping", "early_stopping_met", "no"),
        ("equal-issue", "effective_sample_concatenate_permutation", 1),
        ("performance-samples", "effective_performance_sample_count", [24576]),
        ("token-latencies", "requested_use_token_latencies", "true"),
        ("latency", "result_first_token_99.00_percentile_latency_ns", "1"),
        ("latency-settings", "requested_server_tpot_latency", {}),
    ],
)
def test_what_is_no_value_of_its_kind_is_an_error(tmp_path, rule, key, value):
    findings = [finding for finding in found(tmp_path, {key: value}) if finding.rule == rule]
    assert {finding.what for finding in findings} == {"wrong value in a LoadGen log"}
    assert {(finding.expected.split(":")[0], finding.found) for finding in findings} == {(key, repr(value))}
    assert {finding.path for finding in findings} == {
        f"closed/Acme/{CLOSED}/Server/performance/run_1/mlperf_log_detail.txt"
    }


def test_what_cannot_be_read_is_no_matter_of_size(tmp_path):
    write(tmp_path / "closed/Acme" / PROFILE, '{"profile": "smoke"}')
    severities = {
        value: {f.severity for f in found(tmp_path, {"effective_min_duration_ms": value}) if f.rule == "min-duration"}
        for value in (1, "1")
    }
    assert severities == {1: {Severity.SCALE}, "1": {Severity.ERROR}}
