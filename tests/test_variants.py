"""Under which official variants a result is packaged."""

from collections.abc import Mapping
from typing import Any

import pytest
from runs import BENCHMARK
from submissions import official, submission_of

from harness_llm.config.benchmark import Benchmark, load_benchmark
from harness_llm.config.rules.rounds import load_round
from harness_llm.errors import ConfigError, EnvironmentMissing, GateFailed
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.submission.variants import left_out, packaged_variants

HIGH, LOW = "llama2-70b-99.9", "llama2-70b-99"
DEMO = load_benchmark(BENCHMARK, Workspace(CHECKOUT))
LLAMA = official("llama2-70b", HIGH, LOW)


def scores(rouge1: float, tokens: float = 294.45) -> dict[str, float]:
    """Between 43.986888 and 44.3867688, ROUGE1 meets 99 alone."""
    return {"ROUGE1": rouge1, "ROUGE2": 22.0352, "ROUGEL": 28.6162, "TOKENS_PER_SAMPLE": tokens}


BEST, FAIR, POOR = scores(44.4312), scores(44.0), scores(43.0)


@pytest.mark.parametrize(
    ("benchmark", "how", "round_name", "found", "names"),
    [
        (LLAMA, "closed valid", "v6.0", {"Offline": BEST, "Server": BEST}, [HIGH, LOW]),
        (LLAMA, "closed valid", "v6.1", {"Offline": BEST, "Server": BEST}, [HIGH]),
        (LLAMA, "closed valid", "v5.0", {"Offline": FAIR, "Server": FAIR}, [LOW]),
        (LLAMA, "closed valid", "v6.0", {"Offline": BEST, "Server": FAIR}, [LOW]),
        (LLAMA, "closed valid", "v6.0", {"Offline": scores(44.3867688)}, [HIGH, LOW]),
        (LLAMA, "open valid", "v6.0", {"Offline": POOR}, [HIGH, LOW]),
        (LLAMA, "closed smoke", "v6.0", {"Offline": POOR}, [HIGH, LOW]),
        (DEMO, "open valid", "v6.0", {"Offline": POOR}, ["demo"]),
    ],
)
def test_result_is_packaged_under_every_variant_that_it_meets(
    benchmark: Benchmark, how: str, round_name: str, found: Any, names: list[str]
) -> None:
    division, profile = how.split()
    what = submission_of(benchmark, division=division, profile=profile, rules=load_round(round_name))
    assert packaged_variants(what, found, {}) == {name: list(found) for name in names}


@pytest.mark.parametrize(
    ("round_name", "found", "in_tree", "packaged"),
    [
        ("v6.0", {"Offline": BEST, "Server": BEST, "Interactive": FAIR}, {}, {HIGH: "OS", LOW: "OSI"}),
        ("v6.0", {"Offline": BEST, "Interactive": FAIR}, {}, {LOW: "OI"}),
        ("v6.0", {"Offline": BEST}, {HIGH: "I", LOW: "SI"}, {HIGH: "O", LOW: "O"}),
        ("v6.0", {"Interactive": BEST}, {LOW: "OS"}, {LOW: "I"}),
        ("v6.0", {"Interactive": FAIR}, {HIGH: "O", LOW: "O"}, {LOW: "I"}),
        ("v5.0", {"Server": FAIR}, {HIGH: "O", LOW: "O"}, {LOW: "S"}),
        ("v6.0", {"Server": BEST}, {}, {HIGH: "S", LOW: "S"}),
    ],
)
def test_scenarios_in_the_tree_count_for_a_variant(
    round_name: str, found: Any, in_tree: dict[str, str], packaged: dict[str, str]
) -> None:
    names = {"O": "Offline", "S": "Server", "I": "Interactive"}
    what = submission_of(LLAMA, division="closed", profile="valid", rules=load_round(round_name))
    remaining, wanted = ({k: [names[s] for s in v] for k, v in d.items()} for d in (in_tree, packaged))
    assert packaged_variants(what, found, remaining) == wanted


@pytest.mark.parametrize(
    ("round_name", "found", "told"),
    [
        ("v6.1", {"Offline": BEST, "Server": FAIR}, f"{HIGH}: Server, ROUGE1 fails: 44, at least 44.3867688"),
        ("v6.0", {"Offline": POOR}, f"{LOW}: Offline, ROUGE1 fails: 43, at least 43.986888"),
        ("v6.0", {"Offline": scores(44.4312, 330)}, f"{LOW}: Offline, TOKENS_PER_SAMPLE fails: 330, at most 323.895"),
        ("v6.0", {"Offline": {}}, f"{LOW}: Offline, ROUGE1 fails: not scored"),
    ],
)
def test_result_that_meets_no_variant_is_refused_in_closed(
    round_name: str, found: Mapping[str, Mapping[str, float]], told: str
) -> None:
    what = submission_of(LLAMA, division="closed", profile="valid", rules=load_round(round_name))
    with pytest.raises(GateFailed) as caught:
        packaged_variants(what, found, {})
    assert told in caught.value.found


def test_variant_that_is_left_out_is_reported() -> None:
    what = submission_of(LLAMA, division="closed", profile="valid", rules=load_round("v6.0"))
    assert left_out(what, {"Offline": BEST}, {}) == []
    fails = "ROUGE1 fails: 44, at least 44.3867688"
    assert left_out(what, {"Offline": FAIR}, {}) == [f"not packaged as {HIGH}: Offline, {fails}"]
    in_tree = {name: ["Offline", "Server"] for name in (HIGH, LOW)}
    assert left_out(what, {"Interactive": FAIR}, in_tree) == [f"Interactive not packaged as {HIGH}: {fails}"]
    assert left_out(what, {"Interactive": BEST}, {LOW: ["Offline"]}) == [
        f"not packaged as {HIGH}: Offline, packaged as {LOW} only"
    ]


def test_round_without_any_variant_is_named() -> None:
    with pytest.raises(ConfigError, match=r"v6.1 has no benchmark gptj-99.9(.|\n)*rounds that have it: v5.0"):
        packaged_variants(submission_of(official("gptj", "gptj-99.9", "gptj-99")), {"Offline": BEST}, {})


def test_gates_relative_to_a_reference_select_no_official_variant() -> None:
    own = LLAMA.model_copy(update={"accuracy": DEMO.accuracy})
    with pytest.raises(EnvironmentMissing, match="missing reference scores"):
        packaged_variants(submission_of(own, division="closed", profile="valid"), {"Offline": BEST}, {})
