import pytest

from benchmarks.scoring import ALL, WORDS, Timing, harness, ratios, reference, synthetic

SENTENCES = ["The cats ran off.", "A dog sleeps.", "It was raining on the plain all day, wasn't it?", "She ate 3 fish."]


def timing(way: str, answers: int, seconds: float, cpu_s: float) -> Timing:
    return Timing(way, answers, 1, seconds, cpu_s, {})


def test_both_ways_find_the_same() -> None:
    pairs = synthetic(SENTENCES, 8)
    assert pairs == synthetic(SENTENCES, 8)
    found = harness(pairs, 1, ALL)
    assert found == reference(pairs, 1, ALL)
    assert all(20 < mean < 100 for mean in found.values())


def test_answers_have_the_length_of_openorcas() -> None:
    lengths = [len(text.split()) for pair in synthetic(SENTENCES, 200) for text in pair]
    assert sum(lengths) / len(lengths) == pytest.approx(WORDS, rel=0.1)


def test_rates_are_compared_where_the_answers_are_not_as_many() -> None:
    timings = {
        "rouge_score": timing("reference", 10, 5.0, 5.0),
        "harness": timing("ours", 10, 0.1, 0.2),
        "reference's way": timing("reference", 10, 4.0, 8.0),
        "harness, same metrics": timing("ours", 100, 1.0, 4.0),
    }
    assert ratios(timings) == pytest.approx(
        {"one_process": 50, "one_process_cpu": 25, "every_core": 40, "every_core_cpu": 20}
    )
