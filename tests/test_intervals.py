"""Statistics of `harness-llm compare`: Student's quantiles, intervals between runs, and blocks of time within runs."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_llm.analysis.blocks import QueryTimes, block_length, spreads
from harness_llm.analysis.interval import Estimate, Interval, Spread, between_runs, ratio, within_runs
from harness_llm.analysis.student import two_sided_quantile

RUN_S = 600.0
Rates = st.lists(st.floats(1, 1e6), min_size=3, max_size=8)


def test_quantiles_equal_published_tables() -> None:
    # NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2
    table = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 10: 2.228, 29: 2.045, 100: 1.984, 10**6: 1.960}
    for freedom, quantile in table.items():
        assert two_sided_quantile(0.95, freedom) == pytest.approx(quantile, abs=6e-4)
    assert two_sided_quantile(0.99, 7) == pytest.approx(3.499, abs=6e-4)
    assert two_sided_quantile(0.95, 4.9) == two_sided_quantile(0.95, 4)


def test_quantile_without_a_degree_of_freedom_is_refused() -> None:
    with pytest.raises(ValueError, match="degrees of freedom"):
        two_sided_quantile(0.95, 0.9)


def of(values: list[float]) -> Estimate:
    estimate = between_runs(values)
    assert estimate
    return estimate


@given(Rates, Rates, st.floats(0.5, 2))
def test_interval_of_runs_is_symmetric_and_scales(a: list[float], b: list[float], factor: float) -> None:
    found, swapped = ratio(of(a), of(b)), ratio(of(b), of(a)).inverse
    assert (found.low, found.high) == pytest.approx((swapped.low, swapped.high), rel=1e-9)
    scaled = ratio(of(a), of([value * factor for value in b]))
    assert scaled.low == pytest.approx(found.low * factor, rel=1e-6)
    assert scaled.high == pytest.approx(found.high * factor, rel=1e-6)


@given(Rates)
def test_same_runs_have_no_difference(a: list[float]) -> None:
    found = ratio(of(a), of(a))
    assert found.low <= 1 <= found.high


def test_interval_of_equal_values_is_a_point() -> None:
    assert ratio(of([2.0] * 3), of([3.0] * 3)) == Interval(pytest.approx(1.5), pytest.approx(1.5))


@pytest.mark.parametrize("values", [[], [1.0, 1.0], [1.0, 0.0, 1.0]])
def test_fewer_than_three_positive_values_have_no_estimate(values: list[float]) -> None:
    assert between_runs(values) is None


def test_variance_of_several_runs_is_that_of_their_mean() -> None:
    estimate = within_runs([math.e, math.e], [Spread(0.04, 10), Spread(0.04, 20)])
    assert estimate == Estimate(pytest.approx(1), Spread(pytest.approx(0.02), 30))
    assert within_runs([1.0, 1.0], [Spread(0.04, 10), None]) is None


@pytest.mark.parametrize(("difference", "share"), [(0.0, 0.05), (0.05, 1.0)])
def test_difference_between_three_runs_a_side_is_found_if_there_is_one(difference: float, share: float) -> None:
    """A/A: 5 % of the intervals miss 1. A/B of 5 % with a noise of 0.5 %: all do."""
    random = np.random.default_rng(7)
    missed = 0
    for _ in range(400):
        a, b = (np.exp(random.normal(shift, 0.005, 3)).tolist() for shift in (0, difference))
        found = ratio(of(a), of(b))
        missed += not found.low <= 1 <= found.high
    assert missed / 400 == pytest.approx(share, abs=0.03)


def simulated(
    random: np.random.Generator, *, rate: float = 8, correlation_s: float = 4, swing: float = 0.3
) -> QueryTimes:
    """A Server run whose throughput and latencies follow one load, an AR(1) process in steps of a tenth of a second."""
    steps, step_s = int(RUN_S * 10), 0.1
    decay = math.exp(-step_s / correlation_s)
    noise = random.normal(0, math.sqrt(1 - decay**2), steps)
    noise[0] = random.normal()
    load = np.empty(steps)
    load[0] = noise[0]
    for i in range(1, steps):
        load[i] = decay * load[i - 1] + noise[i]
    counts = random.poisson(rate * step_s * np.clip(1 + swing * load, 0, None))
    completion = np.repeat(np.arange(steps) * step_s, counts) + random.uniform(0, step_s, counts.sum())
    slow = np.exp(0.2 * np.repeat(load, counts) + random.normal(0, 0.2, len(completion)))
    tokens = random.integers(50, 150, len(completion)).astype(float)
    first = completion - slow * tokens * 0.01
    issue = first - 0.3 * slow
    return QueryTimes(issue + 10, issue + 10, first + 10, completion + 10, tokens)


def value(queries: QueryTimes, name: str) -> float:
    if name == "tokens_per_second":
        return float(queries.output_tokens.sum()) / RUN_S
    return float(np.percentile(queries.latencies_ms["ttft"], int(name[1:3])))


def test_intervals_within_runs_cover_the_true_ratio() -> None:
    """A/A pairs of simulated runs with correlated queries: about 95 % of the intervals contain 1; of p99, 90 %."""
    random = np.random.default_rng(3)
    runs = [simulated(random) for _ in range(30)]
    found = [spreads(run) for run in runs]
    for name, least in (("tokens_per_second", 0.92), ("p50_ttft_ms", 0.9), ("p99_ttft_ms", 0.85)):
        estimates = [within_runs([value(run, name)], [own[name]]) for run, own in zip(runs, found, strict=True)]
        pairs = [ratio(a, b) for a, b in itertools.combinations(estimates, 2) if a and b]
        share = np.mean([pair.low <= 1 <= pair.high for pair in pairs])
        assert least <= share <= 0.99, name


def scaled(queries: QueryTimes, factor: float, shift_s: float) -> QueryTimes:
    times = [
        getattr(queries, name) * factor + shift_s for name in ("issue_s", "send_s", "first_token_s", "completion_s")
    ]
    return QueryTimes(*times, queries.output_tokens)


def test_spreads_do_not_depend_on_units_and_start() -> None:
    run = simulated(np.random.default_rng(5))
    found, other = spreads(run), spreads(scaled(run, 2.0, 100.0))
    assert {name.rpartition("_")[0] for name in found} >= {"p99_ttft", "p50_tpot", "p90_latency", "tokens_per"}
    for name, spread in found.items():
        assert other[name].variance == pytest.approx(spread.variance, rel=0.02), name
        assert other[name].freedom == spread.freedom == 19


def test_offline_has_no_spread_of_first_tokens() -> None:
    run = simulated(np.random.default_rng(6))
    offline = QueryTimes(
        run.issue_s, run.send_s, np.full_like(run.issue_s, np.nan), run.completion_s, run.output_tokens
    )
    assert {name.split("_")[1] for name in spreads(offline)} == {"per", "latency"}


@pytest.mark.parametrize(("answer_s", "length_s"), [(0.1, 30), (15, 30), (20, 40), (40, 60), (60, 60), (61, None)])
def test_blocks_are_longer_than_answers(answer_s: float, length_s: float | None) -> None:
    assert block_length(RUN_S, answer_s) == length_s


def test_short_runs_have_no_spread() -> None:
    times = np.linspace(0, 600, 99)
    assert spreads(QueryTimes(times, times, times + 1, times + 2, np.full(99, 10.0))) == {}
