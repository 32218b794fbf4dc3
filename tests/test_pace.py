"""The timing model of the replay engine, checked against arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_llm.replicas.engines.replay_timing import Batch, Pace

PACE = Pace(prefill_s=0.001, step_s=0.02, sequence_s=0.0005, seats=4, budget=100)


def drive(batch: Batch) -> tuple[dict[int, float], dict[int, float]]:
    """When each query that is held has its first token, and its whole answer."""
    now, first, finished = 0.0, {}, {}
    while batch.unfinished:
        now += batch.begin()
        started, ended = batch.end()
        first |= dict.fromkeys(started, now)
        finished |= dict.fromkeys(ended, now)
    return first, finished


def test_generated_counts_the_tokens_of_all_answers_step_by_step() -> None:
    batch = Batch(PACE)
    for query in range(5):
        batch.add(query, prompt=30, answer=4 + query)
    batch.begin()
    batch.end()
    assert batch.generated == 3  # of the budget of 100, three prompts of 30
    drive(batch)
    assert batch.generated == 4 + 5 + 6 + 7 + 8


def test_one_query_alone() -> None:
    batch = Batch(PACE)
    batch.add(7, prompt=50, answer=11)
    first, finished = drive(batch)
    assert first[7] == pytest.approx(0.02 + 50 * 0.001)
    assert finished[7] == pytest.approx(first[7] + 10 * (0.02 + 0.0005))


def test_a_long_prompt_takes_several_steps() -> None:
    batch = Batch(PACE)
    batch.add(1, prompt=250, answer=2)
    first, _ = drive(batch)
    assert first[1] == pytest.approx(3 * 0.02 + 250 * 0.001)


def test_no_more_run_at_once_than_there_are_seats() -> None:
    batch = Batch(PACE)
    for query in range(5):
        batch.add(query, prompt=1, answer=3)
    assert batch.begin() == pytest.approx(0.02 + 4 * 0.001)
    assert batch.end() == ([0, 1, 2, 3], [])
    assert (batch.running, batch.unfinished) == (4, 5)
    first, finished = drive(batch)
    assert first[4] > finished[0]


def test_an_answer_of_one_token_ends_with_its_first() -> None:
    batch = Batch(PACE)
    batch.add(1, prompt=10, answer=1)
    first, finished = drive(batch)
    assert first == finished


def test_steps_without_a_duration_are_made_at_once() -> None:
    batch = Batch(Pace(prefill_s=0, step_s=0, sequence_s=0, seats=4, budget=100))
    batch.add(1, prompt=10, answer=1000)
    batch.begin()
    assert batch.end() == ([1], [])
    assert batch.begin() == 0
    assert batch.end() == ([], [1])


queries = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 50)), max_size=30)


@given(queries, st.integers(0, 5))
def test_every_query_starts_and_ends_once(held: list[tuple[int, int]], late: int) -> None:
    batch = Batch(PACE)
    for query, (prompt, answer) in enumerate(held[late:]):
        batch.add(query, prompt, answer)
    first, finished = drive(batch)
    assert sorted(first) == sorted(finished) == list(range(len(held[late:])))
    assert all(first[query] <= finished[query] for query in first)
    assert batch.running == batch.unfinished == 0
