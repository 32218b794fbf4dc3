"""Summaries of paired measurements."""

import json
from typing import Any

import pytest

from benchmarks.__main__ import PARTS
from benchmarks.engines import Pass, Served, compare
from benchmarks.measurement import HarnessMeasurement, Measurement, Pair, interval, summary
from benchmarks.offline import COLUMNS
from benchmarks.scoring import ALL, WORDS, Timing, harness, ratios, reference, synthetic


def pair(harness: float, reference: float, *, harness_cpu: float = 10, reference_cpu: float = 10) -> Pair:
    """Both arms over 10 s, at so many tokens/s."""

    def of(rate: float, cpu: float) -> dict[str, Any]:
        return {
            "samples": 100,
            "tokens": int(rate * 10),
            "seconds": 10,
            "tokens_per_second": rate,
            "engine_cpu_s": cpu,
            "idle_cpu_s": 0,
            "others_cores": 0.5,
        }

    measured = HarnessMeasurement(**of(harness, harness_cpu), loadgen_cpu_s=1, loadgen_start_s=0.5)
    return Pair(measured, Measurement(**of(reference, reference_cpu)))


def test_ratio_is_harness_over_reference() -> None:
    assert pair(90, 100).ratio == pytest.approx(0.9)


def test_cpu_ratio_counts_the_engines_seconds_alone() -> None:
    assert pair(50, 100, harness_cpu=5, reference_cpu=10).cpu_ratio == pytest.approx(1.0)


def test_summary_takes_the_median_and_keeps_every_pair() -> None:
    pairs = [pair(80, 100), pair(99, 100), pair(101, 100)]
    document = json.loads(json.dumps(summary(pairs)))
    assert document["ratio"] == {"median": 0.99, "low": 0.8, "high": 1.01}
    assert [p["reference"]["tokens_per_second"] for p in document["pairs"]] == [100, 100, 100]
    assert document["pairs"][0]["ratio"] == 0.8


def test_every_column_is_rendered() -> None:
    row = {name: text(pair(4321, 4000)) for name, text in COLUMNS.items()}
    assert row["tokens/s"] == "4,321 4,000"
    assert row["ratio"] == "1.080"


def test_confidence_interval_narrows_with_more_values() -> None:
    values = [90.0, 95, 100, 105, 110]
    few, many = interval(values), interval(values * 20)
    assert few["median"] == many["median"] == 100
    assert few["low"] < many["low"] <= 100 <= many["high"] < few["high"]
    assert interval([7.0]) == {"median": 7.0, "low": 7.0, "high": 7.0}


def test_every_part_has_a_description() -> None:
    assert all(part.description and part.repeats and part.seconds for part in PARTS.values())


# Scoring


SENTENCES = ["The cats ran off.", "A dog sleeps.", "It was raining on the plain all day, wasn't it?", "She ate 3 fish."]


def timing(way: str, answers: int, seconds: float, cpu_s: float) -> Timing:
    return Timing(way, answers, 1, seconds, cpu_s, {})


def test_both_ways_of_scoring_give_the_same() -> None:
    pairs = synthetic(SENTENCES, 8)
    assert pairs == synthetic(SENTENCES, 8)
    found = harness(pairs, 1, ALL)
    assert found == reference(pairs, 1, ALL)
    assert all(20 < mean < 100 for mean in found.values())


def test_answers_have_the_lengths_of_openorca() -> None:
    lengths = [len(text.split()) for pair in synthetic(SENTENCES, 200) for text in pair]
    assert sum(lengths) / len(lengths) == pytest.approx(WORDS, rel=0.1)


def test_rates_are_compared_for_different_numbers_of_answers() -> None:
    timings = {
        "rouge_score": timing("reference", 10, 5.0, 5.0),
        "harness": timing("harness", 10, 0.1, 0.2),
        "reference's way": timing("reference", 10, 4.0, 8.0),
        "harness, same metrics": timing("harness", 100, 1.0, 4.0),
    }
    assert ratios(timings) == pytest.approx(
        {"one_process": 50, "one_process_cpu": 25, "every_core": 40, "every_core_cpu": 20}
    )


# Answers of two engines


ANSWERS = [[5, 2], [6, 7, 2], [8, 2], [9, 2]]


def served(alone: list[list[int]], loaded: list[list[int]], rouge: float) -> Served:
    return Served(Pass(alone, 2.0, {}), Pass(loaded, 2.0, {}), dict.fromkeys(("ROUGE1", "ROUGE2", "ROUGEL"), rouge))


@pytest.mark.parametrize(
    ("alone", "loaded", "rouge", "good"),
    [
        (ANSWERS, ANSWERS, 98.0, True),
        (ANSWERS, [[5, 5, 2], *ANSWERS[1:]], 98.15, True),
        (ANSWERS, ANSWERS, 98.25, False),
        ([[5, 5, 2], *ANSWERS[1:]], ANSWERS, 98.0, False),
    ],
)
def test_answers_alone_are_equal_and_scores_under_load_are_close(
    alone: list[list[int]], loaded: list[list[int]], rouge: float, *, good: bool
) -> None:
    assert compare(served(ANSWERS, ANSWERS, 98.0), served(alone, loaded, rouge)).good is good


def test_share_of_differing_answers() -> None:
    found = compare(served(ANSWERS, ANSWERS, 1), served(ANSWERS, [[5, 5, 2], *ANSWERS[1:]], 1))
    assert (found.same_alone, found.differing_loaded) == (4, 0.25)


def test_tokens_per_second() -> None:
    assert Pass(ANSWERS, 2.0, None).tokens_per_second == 4.5
