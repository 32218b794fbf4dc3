"""Lines of the search for a target."""

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_target import System, goal_of, search

from harness_llm.pipeline.tuning.search_steps import Confirm, Done, Goal, Latency, Measurement, Probe
from harness_llm.pipeline.tuning.target_report import describe_result, describe_step, describe_trial
from harness_llm.pipeline.tuning.target_search import next_target_trial
from harness_llm.runs.trial_store import Trial

PLAN = cast("Any", SimpleNamespace(target_key="llama2-70b.Server.target_qps"))
WITHIN, GROWING = (Latency(0.5, 0.02),), (Latency(8.0, 0.05, True),)


def probe(target: float, *, valid: bool) -> Measurement:
    return Measurement(target, False, valid, 90, latencies=WITHIN if valid else GROWING)


def full(target: float, *, valid: bool) -> Measurement:
    return Measurement(target, True, valid, 600, latencies=(Latency(0.99 if valid else 1.01, 0.02),), throughput=0.0)


def result(goal: Goal, trials: list[Measurement], done: Done) -> str:
    return describe_result(goal, trials, done, PLAN, "user.conf")


def test_latencies_are_shares_or_multiples_of_their_limits() -> None:
    latencies = (Latency(1053.6, 0.5, True), Latency(0.87, 0.02))
    measured = Measurement(4000, False, False, 18, latencies=latencies, throughput=195.4, duration_s=18)
    trial = Trial(
        number=0, kind="probe", scenario="Server", state="INVALID", seconds=18, target_qps=4000, reason="ended early"
    )
    assert describe_trial(trial, measured) == (
        "probe 0: INVALID at 4000, p99 TTFT at least 1054 times its limit (queue grows), p99 TPOT 87% of its limit, "
        "18.0 s, throughput 195.4 samples/s, ended early"
    )


@pytest.mark.parametrize(
    ("trials", "text"),
    [
        ([], ""),
        ([Measurement(400, False, valid=False, seconds=5, failed=True)], ""),
        ([probe(400, valid=False)], "; so far no VALID target, 400 INVALID"),
        ([probe(100, valid=True)], "; so far 100 VALID"),
        ([probe(100, valid=True), probe(400, valid=False), probe(300, valid=False)], "; so far 100 VALID, 300 INVALID"),
        (
            [probe(100, valid=True), full(480, valid=True), probe(450, valid=False)],
            "; so far 480 VALID; contrary to that, 450 INVALID",
        ),
        (
            [probe(137, valid=False), probe(140, valid=True), probe(141, valid=False)],
            "; so far 140 VALID, 141 INVALID; contrary to that, 137 INVALID",
        ),
        ([probe(480, valid=True), full(475, valid=False)], "; so far no VALID target, 475 INVALID"),
        ([probe(480, valid=True), full(475, valid=False), probe(90, valid=True)], "; so far 90 VALID, 475 INVALID"),
    ],
)
def test_next_trial_has_the_bracket_of_the_trials_and_no_range(trials: list[Measurement], text: str) -> None:
    expected = f"next: probe of 9000 queries at 100 queries/s, about 1:30{text}"
    assert describe_step(goal_of(100), trials, Probe(100, 9000)) == expected


def test_invalid_run_of_full_length_bounds_the_range() -> None:
    """By the model, without that verdict, the range is 35.3 to 37.6."""
    goal, trials = goal_of(36), [probe(30, valid=True), full(35.7, valid=True), full(36.53, valid=False)]
    step = next_target_trial(goal, trials)
    assert isinstance(step, Done)
    text = result(goal, trials, step)
    assert re.search(r"highest VALID target: 35.7\d* to (below )?36.\d+ queries/s with 90 % probability", text)
    assert "bracket: 35.7 VALID at full length, 36.53 INVALID at full length" in text


def test_invalid_probe_in_the_range_is_named() -> None:
    goal, trials = goal_of(36), [probe(36.53, valid=False), full(35.7, valid=True)]
    text = result(goal, trials, Done(35.7, 35.7, 38.49))
    assert "bracket: 35.7 VALID at full length, 36.53 INVALID in a probe, which is less certain" in text


def test_search_without_a_result_has_its_bracket() -> None:
    goal, trials = goal_of(420), [probe(420.1, valid=True), full(422.1, valid=False)]
    assert result(goal, trials, Done(None, 0, 0, "no time")).startswith(
        "no time; so far 420.1 VALID, 422.1 INVALID; 1 "
    )


SYSTEMS = st.builds(
    System,
    throughput=st.floats(20, 500),
    limited_by=st.sampled_from(["ttft", "tpot"]),
    noise=st.sampled_from([0.0, 0.01, 0.05]),
    seed=st.integers(0, 1000),
    predicts=st.booleans(),
)


@settings(max_examples=30, deadline=None)
@given(SYSTEMS, st.sampled_from([0.1, 1.0, 10.0]))
def test_no_printed_range_contradicts_a_trial(system: System, start: float) -> None:
    goal = goal_of(start * system.capacity)
    done, trials = search(system, goal)
    for count in range(len(trials)):
        step = next_target_trial(goal, trials[:count])
        assert isinstance(step, Probe | Confirm)
        numbers = re.search(r"so far ([\d.]+) VALID(?:, (\S+) INVALID)?", describe_step(goal, trials[:count], step))
        if numbers:
            low, high = (float(number or "inf") for number in numbers.groups())
            made = [(float(f"{trial.target:g}"), trial) for trial in trials[:count] if not trial.failed]
            assert not any(low < target < high for target, trial in made)
            assert not any(trial.full and not trial.valid and target <= low for target, trial in made)
    if done.target is None:
        return
    found = re.search(r"highest VALID target: (\S+) to (below )?(\S+) queries/s", result(goal, trials, done))
    assert found
    low, high = float(found[1]), float(found[3])
    verdicts = [(trial.target, trial.valid) for trial in trials if trial.full]
    assert all(target <= low * 1.001 for target, valid in verdicts if valid)
    assert all(target >= high if found[2] else target > high for target, valid in verdicts if not valid)
