"""The rules of every round against the official checker, LoadGen and the references; MLPERF_INFERENCE_DIR names the
checkout. tests/data/official_values.yaml lists the differences with their reasons."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from official_values import DATA, Checkout, Pair, of_benchmark, of_round

from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE
from harness_llm.config.rules import Round, load_round, round_names, rounds

pytestmark = pytest.mark.inference
CHECKOUT = Checkout(Path(os.environ.get(CHECKOUT_VARIABLE, "")))
ROUNDS = [load_round(name) for name in round_names()]
BENCHMARKS = [
    pytest.param(round_, name, id=f"{round_.round}-{name}") for round_ in ROUNDS for name in round_.benchmarks
]
# Compared as a whole where they are a value, but for compliance tests, which a test of their own compares.
VALUES = {"ScenarioRules", "LatencyLimit", "Decoding", "NeverAccepted", "Speculation", "ComplianceTest", "FolderRules"}
PARENTS = {"Round.loadgen", "Round.layout", "Round.system", "Round.compliance"}


def differences(round_: str, benchmark: str) -> dict[str, tuple[Any, Any]]:
    """Ours and the official value by field, as listed with their reasons."""
    return {
        entry["field"]: (entry["ours"], entry["official"])
        for entry in DATA["differences"]
        if round_ in entry["rounds"] and benchmark in entry["benchmarks"] and entry["reason"]
    }


def unequal(pairs: Iterator[Pair]) -> dict[str, tuple[Any, Any]]:
    return {pair.field: (pair.ours, pair.official) for pair in pairs if pair.ours != pair.official}


@pytest.mark.parametrize("round_", ROUNDS, ids=lambda r: r.round)
def test_round_equals_the_official_one(round_: Round) -> None:
    assert unequal(of_round(round_, CHECKOUT)) == {}


@pytest.mark.parametrize(("round_", "name"), BENCHMARKS)
def test_benchmark_equals_the_official_one_but_for_listed_differences(round_: Round, name: str) -> None:
    assert unequal(of_benchmark(round_, name, CHECKOUT)) == differences(round_.round, name)


def test_listed_differences_belong_to_benchmarks_of_their_round() -> None:
    for entry in DATA["differences"]:
        assert all(name in load_round(r).benchmarks for r in entry["rounds"] for name in entry["benchmarks"])


def fields(*names: str) -> set[str]:
    return {f"{name}.{field}" for name in names for field in getattr(rounds, name).model_fields}


def elsewhere(benchmark: str = "") -> set[str]:
    return {e["field"] for e in DATA["elsewhere"] if e["source"] and benchmark in e.get("benchmarks", [benchmark])}


def test_every_class_of_rules_is_compared() -> None:
    classes = {
        name for name, found in vars(rounds).items() if isinstance(found, type) and issubclass(found, rounds._Facts)
    }
    assert classes == VALUES | {"_Facts", "Round", "LoadGenRules", "Layout", "SystemRules", "BenchmarkRules"}


@pytest.mark.parametrize("round_", ROUNDS, ids=lambda r: r.round)
def test_every_value_of_a_round_is_compared_or_has_another_source(round_: Round) -> None:
    compared = {pair.field for pair in of_round(round_, CHECKOUT)} | PARENTS
    other = {field for field in elsewhere() if not field.startswith("BenchmarkRules.")}
    assert compared | other == fields("Round", "LoadGenRules", "Layout", "SystemRules")
    assert not compared & other


@pytest.mark.parametrize(("round_", "name"), BENCHMARKS)
def test_every_value_of_a_benchmark_is_compared_or_has_another_source(round_: Round, name: str) -> None:
    rules = round_.benchmarks[name]
    compared = {pair.field for pair in of_benchmark(round_, name, CHECKOUT)}
    stated = {f"BenchmarkRules.{field}" for field, value in rules if value not in (None, (), {})}
    assert stated <= compared | elsewhere(name)
    assert not compared & elsewhere(name)


def audit_values(path: str) -> dict[str, float]:
    text = CHECKOUT.text(f"compliance/{path}/audit.config")
    lines = (line.partition("=") for line in text.splitlines() if line.startswith("*.*."))
    return {key.strip().removeprefix("*.*."): yaml.safe_load(value) for key, _, value in lines}


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
def test_compliance_tests_equal_the_official_ones(test: str, path: str, bounds: dict[str, str]) -> None:
    ours, official = ROUNDS[-1].compliance[test], audit_values(path)
    assert ours.audit | {bounds[name]: value for name, value in ours.bounds.items()} == official
    script = CHECKOUT.code("checks/compliance_check.py")
    assert ours.verdict in script
    for line in (line for group in ours.passes for line in group):
        assert f'"{line}" in ' in script
    verification = CHECKOUT.text(f"compliance/{test}/run_verification.py")
    assert ours.verdict in verification
    assert all(f'"{file}"' in verification for file in ours.packed.values())


def test_every_compliance_test_is_compared() -> None:
    assert {test for round_ in ROUNDS for test in round_.compliance} == {"TEST06", "TEST07", "TEST09"}
