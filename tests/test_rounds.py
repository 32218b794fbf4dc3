import pytest
from pydantic import ValidationError

from harness_llm.config.rules import Round, load_round, round_names
from harness_llm.errors import ConfigError

ROUNDS = [load_round(name) for name in round_names()]


def test_there_are_four_rounds_oldest_first() -> None:
    assert round_names() == ["v5.0", "v5.1", "v6.0", "v6.1"]
    deadlines = [round_.deadline for round_ in ROUNDS]
    assert deadlines == sorted(deadlines)


@pytest.mark.parametrize("round_", ROUNDS, ids=lambda r: r.round)
def test_every_round_is_complete(round_: Round) -> None:
    assert load_round(round_.round) is round_
    assert round_.loadgen.version in round_.loadgen.versions
    for rules in round_.benchmarks.values():
        assert set(rules.compliance) <= set(round_.compliance)
        for limits in (rules.latency_ms, rules.answer_latency_ms):
            assert set(limits) <= set(round_.scenarios)
        for own in rules.scenarios.values():
            assert {*own.required, *own.optional} <= set(round_.scenarios)
            assert set(own.one_of) <= set(own.optional)


def test_each_round_has_its_own_loadgen() -> None:
    assert len({round_.loadgen.version for round_ in ROUNDS}) == len(ROUNDS)
    assert len({tuple(round_.loadgen.seeds.values()) for round_ in ROUNDS}) == len(ROUNDS)


def test_each_round_has_its_layout() -> None:
    assert {round_.round: round_.layout.source for round_ in ROUNDS} == {
        "v5.0": "code",
        "v5.1": "code",
        "v6.0": "src",
        "v6.1": "src",
    }


def test_value_of_a_round_overrides_the_inherited_one() -> None:
    tokens = {r.round: r.benchmarks["deepseek-r1"].egress_tokens for r in ROUNDS if "deepseek-r1" in r.benchmarks}
    assert tokens == {"v5.1": 32768, "v6.0": 20000, "v6.1": 20000}


@pytest.mark.parametrize(
    ("name", "rounds"),
    [
        ("llama2-70b-99.9", ["v5.0", "v5.1", "v6.0", "v6.1"]),
        ("llama2-70b-99", ["v5.0", "v5.1", "v6.0"]),
        ("llama2-70b-interactive-99.9", ["v5.0"]),
        ("gptj-99", ["v5.0"]),
        ("mixtral-8x7b", ["v5.0", "v5.1", "v6.0"]),
        ("llama3.1-8b-edge", ["v5.1", "v6.0", "v6.1"]),
        ("gpt-oss-120b", ["v6.0", "v6.1"]),
    ],
)
def test_benchmark_missing_from_a_round_lists_the_rounds_that_have_it(name: str, rounds: list[str]) -> None:
    assert [round_.round for round_ in ROUNDS if name in round_.benchmarks] == rounds
    for round_ in ROUNDS:
        if round_.round in rounds:
            assert round_.benchmark(name) is round_.benchmarks[name]
        else:
            with pytest.raises(ConfigError, match=f"round {round_.round} has no benchmark {name}") as caught:
                round_.benchmark(name)
            assert caught.value.hint == f"rounds that have it: {', '.join(rounds)}"
            assert caught.value.expected == ", ".join(round_.benchmarks)


def test_interactive_has_its_own_loadgen_model_name() -> None:
    rules = load_round("v6.1").benchmark("llama2-70b-99.9")
    names = {scenario: rules.loadgen_model(scenario) for scenario in ("Offline", "Server", "Interactive")}
    assert names == {
        "Offline": "llama2-70b",
        "Server": "llama2-70b",
        "Interactive": "llama2-70b-interactive",
    }
    assert load_round("v5.0").benchmark("llama2-70b-interactive-99").loadgen_model("Server") == names["Interactive"]


def test_unknown_round_lists_the_rounds() -> None:
    with pytest.raises(ConfigError, match="unknown round v9") as caught:
        load_round("v9")
    assert caught.value.expected == ", ".join(round_names())
    assert round_names()[-1] in caught.value.hint


@pytest.mark.parametrize("name", ["6.0", "V6.0"])
def test_round_has_one_name_in_each_spelling(name: str) -> None:
    assert load_round(name) is load_round("v6.0")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("v6.00", "--round v6.0"),
        ("v50", "--round v5.0"),
        ("5,1", "--round v5.1"),
        ("v7", "--round v6.1"),
        ("v10.0", "--round v6.0"),
        ("newest", "--round v6.1"),
        ("v4.1", "rounds before v5.0 are not supported"),
        ("0.7", "rounds before v5.0 are not supported"),
    ],
)
def test_unknown_round_hints_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_round(name)
    assert caught.value.hint == hint


def test_unknown_benchmark_lists_those_of_the_round() -> None:
    with pytest.raises(ConfigError, match=r"round v6\.1 has no benchmark llama2-70") as caught:
        load_round("v6.1").benchmark("llama2-70")
    assert "llama2-70b-99.9" in caught.value.expected
    assert not caught.value.hint


def test_rules_refuse_unknown_keys_and_are_immutable() -> None:
    round_ = load_round("v6.1")
    with pytest.raises(ValidationError, match="min_duraton_ms"):
        Round.model_validate(round_.model_dump() | {"min_duraton_ms": 1})
    with pytest.raises(ValidationError, match="frozen"):
        round_.min_duration_ms = 1
