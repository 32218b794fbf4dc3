import pytest
from pydantic import ValidationError

from harness_llm.errors import ConfigError
from harness_llm.rules import Round, load_round, round_names


@pytest.mark.parametrize("name", round_names())
def test_every_round_is_read_and_names_itself(name: str) -> None:
    round_ = load_round(name)
    assert round_.round == name
    assert round_.loadgen.versions
    for rules in round_.benchmarks.values():
        assert set(rules.latency_ms) <= set(round_.scenarios)
        assert set(rules.compliance) <= set(round_.compliance)
        assert set(rules.limits) <= set(rules.gates)


def test_interactive_is_a_model_of_its_own_to_loadgen() -> None:
    rules = load_round("v6.1").benchmark("llama2-70b-99.9")
    names = {scenario: rules.loadgen_model(scenario) for scenario in ("Offline", "Server", "Interactive")}
    assert names == {
        "Offline": "llama2-70b",
        "Server": "llama2-70b",
        "Interactive": "llama2-70b-interactive",
    }


def test_an_unknown_round_names_those_that_are_there() -> None:
    with pytest.raises(ConfigError, match="there is no round v9") as caught:
        load_round("v9")
    assert caught.value.expected == ", ".join(round_names())
    assert round_names()[-1] in caught.value.hint


def test_an_unknown_benchmark_names_those_of_the_round() -> None:
    with pytest.raises(ConfigError, match=r"round v6\.1 has no benchmark llama2-70") as caught:
        load_round("v6.1").benchmark("llama2-70")
    assert "llama2-70b-99.9" in caught.value.expected


def test_rules_take_no_unknown_key_and_no_change() -> None:
    round_ = load_round("v6.1")
    with pytest.raises(ValidationError, match="min_duraton_ms"):
        Round.model_validate(round_.model_dump() | {"min_duraton_ms": 1})
    with pytest.raises(ValidationError, match="frozen"):
        round_.min_duration_ms = 1
