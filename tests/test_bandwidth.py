"""Bandwidths that the rules derive from throughput."""

import pytest

from harness_llm.config.rules.rounds import load_round
from harness_llm.submission.bandwidth import MeasuredResult, Segment, compare, required_gbit_s

RULES = load_round("v6.0")


@pytest.mark.parametrize(
    ("benchmark", "samples_per_s", "ingress", "egress"),
    [
        # 100/s x 1024 ids x 4 bytes = 409 600 bytes/s = 3 276 800 bit/s, both ways
        ("llama2-70b-99", 100.0, 0.0032768, 0.0032768),
        # 2.5/s x 20000 ids x 4 bytes = 200 000 bytes/s = 1 600 000 bit/s
        ("llama3.1-405b", 2.5, 0.0016, 0.0016),
        # in: 1000/s x 2048 x 4 = 8 192 000 bytes/s; out: negligible
        ("llama3.1-8b", 1000.0, 0.065536, 0.0),
        # in: 10/s x 15330 x 4 = 613 200 bytes/s; out: 10/s x 10000 x 4 = 400 000 bytes/s
        ("gpt-oss-120b", 10.0, 0.0049056, 0.0032),
    ],
)
def test_bandwidths_follow_the_formulas_of_the_rules(
    benchmark: str, samples_per_s: float, ingress: float, egress: float
) -> None:
    result = MeasuredResult.of(benchmark, "Offline", samples_per_s, RULES.benchmark(benchmark))
    found = compare(result, [Segment("NIC", 100)])
    assert (found.ingress.required_gbit_s, found.egress.required_gbit_s) == pytest.approx((ingress, egress))
    assert found.sufficient


def test_narrowest_link_decides() -> None:
    result = MeasuredResult("b", "Server", 1.0, 1, 1)
    found = compare(result, [Segment("NIC", 400), Segment("switch", 25), Segment("PCIe", 504)])
    assert (found.bottleneck, found.ingress.available_gbit_s, found.egress.available_gbit_s) == ("switch", 25, 25)


def test_each_direction_is_compared() -> None:
    need = required_gbit_s(1e6, 1024)
    result = MeasuredResult("b", "Server", 1e6, 1024, 1025)
    found = compare(result, [Segment("NIC", need)])  # exactly what comes in, a little less than goes out
    assert (found.ingress.sufficient, found.egress.sufficient, found.sufficient) == (True, False, False)


def test_result_without_token_bounds_requires_any_bandwidth() -> None:
    result = MeasuredResult("b", "Server", 1e6, None, None)
    assert compare(result, [Segment("NIC", 0.001)]).sufficient
    assert not compare(result, [Segment("NIC", 0)]).sufficient
