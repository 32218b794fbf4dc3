"""The rules of every round against the official checker's tables; MLPERF_INFERENCE_DIR names the checkout."""

import os
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness_llm.check.official import CHECKOUT_VARIABLE
from harness_llm.rules import BenchmarkRules, Round, load_round, round_names

pytestmark = pytest.mark.skipif(
    CHECKOUT_VARIABLE not in os.environ,
    reason=f"{CHECKOUT_VARIABLE} names no checkout of mlcommons/inference",
)
CHECKOUT = Path(os.environ.get(CHECKOUT_VARIABLE, ""))
ROUNDS = [load_round(name) for name in round_names()]
BENCHMARKS = [
    pytest.param(round_, name, id=f"{round_.round}-{name}") for round_ in ROUNDS for name in round_.benchmarks
]
OTHER_TASKS = {"resnet", "retinanet", "bert", "dlrm", "3d", "stable", "rgat", "whisper", "yolo", "wan", "pointpainting"}
NOT_HELD = {"qwen3-vl-235b-a22b", "qwen3.6-27b", "e2e-rag-qna", "e2e-rag-db"}
NS_PER_MS = 1_000_000


@pytest.fixture(scope="module")
def constants() -> dict[str, Any]:
    return runpy.run_path(str(CHECKOUT / "tools/submission/submission_checker/constants.py"))


def metrics(table: tuple[Any, ...]) -> dict[str, float]:
    """A flat (metric, value, ...) tuple, by our names of the metrics."""
    pairs = zip(table[::2], table[1::2], strict=True)
    return {name.upper().removesuffix("_ACCURACY"): value for name, value in pairs}


def audit_values(path: str) -> dict[str, float]:
    text = (CHECKOUT / "compliance" / path / "audit.config").read_text()
    lines = (line.partition("=") for line in text.splitlines() if line.startswith("*.*."))
    return {key.strip().removeprefix("*.*."): yaml.safe_load(value) for key, _, value in lines}


@pytest.mark.parametrize("round_", ROUNDS, ids=lambda r: r.round)
def test_the_round_itself(constants: dict[str, Any], round_: Round) -> None:
    official = constants["MODEL_CONFIG"][round_.round]
    text = {m for m in official["models"] if m.partition("-")[0] not in OTHER_TASKS} - NOT_HELD
    assert set(round_.benchmarks) == text
    assert round_.loadgen.seeds == official["seeds"]
    assert round_.min_duration_ms == constants["TEST_DURATION_MS"]
    assert round_.max_accuracy_log_bytes == constants["MAX_ACCURACY_LOG_SIZE"]
    assert round_.max_file_mb == constants["FILE_SIZE_LIMIT_MB"]
    assert set(round_.scenarios) == set(constants["SCENARIO_MAPPING"].values())
    assert set(round_.measurements_fields) == set(constants["SYSTEM_IMP_REQUIRED_FILES"])
    assert set(round_.measurements_files) == set(constants["REQUIRED_MEASURE_FILES"])


@pytest.mark.parametrize("round_", ROUNDS, ids=lambda r: r.round)
def test_the_system_and_the_layout(constants: dict[str, Any], round_: Round) -> None:
    system, layout, home = round_.system, round_.layout, "{division}/{submitter}/"
    assert set(system.statuses) == set(constants["VALID_AVAILABILITIES"])
    assert set(system.filled) == set(constants["SYSTEM_DESC_MEANINGFUL_RESPONSE_REQUIRED_FIELDS"])
    assert {*system.filled, *system.present} == set(constants["SYSTEM_DESC_REQUIRED_FIELDS"])
    assert set(system.network) == set(constants["SYSTEM_DESC_REQUIRED_FIELDS_NETWORK_MODE"])
    assert system.network_sut == constants["NETWORK_MODE_REQUIRED_SUBSTRING_IN_SUT_NAME"]
    assert home + layout.source == constants["SRC_PATH"][round_.round]
    assert f"{home}{layout.compliance}/" == constants["COMPLIANCE_PATH"][round_.round]
    folder, _, file = constants["MEASUREMENTS_PATH"][round_.round].rpartition("/")
    assert (home + layout.measurements).rpartition("/")[0] == folder
    assert file in ("{file}", Path(layout.measurements).name)


@pytest.mark.parametrize(("round_", "name"), BENCHMARKS)
def test_gates_limits_and_counts(constants: dict[str, Any], round_: Round, name: str) -> None:
    official, rules = constants["MODEL_CONFIG"][round_.round], round_.benchmarks[name]
    assert rules.gates == pytest.approx(metrics(official["accuracy-target"][name]), rel=1e-12)
    assert rules.limits == pytest.approx(metrics(official["accuracy-upper-limit"].get(name, ())), rel=1e-12)
    accuracy = official["accuracy-sample-count"].get(name, official["dataset-size"][name])
    assert rules.samples == official["performance-sample-count"][name] == official["dataset-size"][name]
    assert (rules.accuracy_samples or rules.samples) == accuracy
    assert rules.offline_samples == constants["OFFLINE_MIN_SPQ_SINCE_V4"].get(name)


@pytest.mark.parametrize(("round_", "name"), BENCHMARKS)
def test_latencies(constants: dict[str, Any], round_: Round, name: str) -> None:
    rules = round_.benchmarks[name]
    limits = {scenario: limit.model_dump() for scenario, limit in rules.latency_ms.items()}
    official = constants["LLM_LATENCY_LIMITS"].get(name, {})
    assert limits == {s: {k: ns / NS_PER_MS for k, ns in limit.items()} for s, limit in official.items()}
    whole = constants["MODEL_CONFIG"][round_.round]["latency-constraint"].get(name, {})
    for scenario, limit in rules.answer_latency_ms.items():
        assert whole[scenario] == limit * NS_PER_MS
    inferred = constants["RESULT_FIELD_BENCHMARK_OVERWRITE"].get(round_.round, {}).get(name, {}).get("Offline", "")
    assert rules.token_latencies == ("inferred" not in inferred)


@pytest.mark.parametrize(("round_", "name"), BENCHMARKS)
def test_scenarios_and_compliance(constants: dict[str, Any], round_: Round, name: str) -> None:
    official, rules = constants["MODEL_CONFIG"][round_.round], round_.benchmarks[name]
    for system_type in ("datacenter", "edge", "datacenter,edge"):
        table = system_type.replace(",", "-")
        assert asked(rules, system_type, "required") == set(official[f"required-scenarios-{table}"].get(name, ()))
        optional = set(official[f"optional-scenarios-{table}"].get(name, ()))
        assert asked(rules, system_type, "optional") == optional
        assert asked(rules, system_type, "one_of") == (optional if {"Server", "Interactive"} <= optional else set())
    lists = {test: official.get(f"models_{test}", ()) for test in ("TEST01", "TEST04", *round_.compliance)}
    asked_today = {test for test, names in lists.items() if name in names}
    # Today's checker lists TEST06 for gptj, which can neither be run nor was asked (rules/v5.0.yaml).
    assert set(rules.compliance) == (asked_today if rules.token_latencies else set())


def asked(rules: BenchmarkRules, system_type: str, what: str) -> set[str]:
    """What all categories of a system ask together."""
    parts = set(system_type.split(","))
    own = (rule for category, rule in rules.scenarios.items() if set(category.split(",")) <= parts)
    return {scenario for rule in own for scenario in getattr(rule, what)}


@pytest.mark.parametrize(
    ("test", "path", "bounds"),
    [
        ("TEST06", "TEST06", {}),
        ("TEST07", "TEST07/gpt-oss-120b", {"accuracy_threshold": "test07_accuracy_threshold"}),
        (
            "TEST09",
            "TEST09/gpt-oss-120b",
            {"min_output_tokens": "test09_min_output_tokens", "max_output_tokens": "test09_max_output_tokens"},
        ),
    ],
)
def test_compliance_tests(test: str, path: str, bounds: dict[str, str]) -> None:
    ours, official = ROUNDS[-1].compliance[test], audit_values(path)
    assert ours.audit | {bounds[name]: value for name, value in ours.bounds.items()} == official
    script = (CHECKOUT / "tools/submission/submission_checker/checks/compliance_check.py").read_text()
    assert ours.verdict in script
    for line in (line for group in ours.passes for line in group):
        assert f'"{line}" in ' in script
    verification = (CHECKOUT / "compliance" / test / "run_verification.py").read_text()
    assert ours.verdict in verification
    assert all(f'"{file}"' in verification for file in ours.packed.values())
