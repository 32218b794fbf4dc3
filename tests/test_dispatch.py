import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness_llm.fleet.dispatch import Credit, Load, deal, least_loaded, longest_first, top_up

loads = st.lists(st.builds(Load, running=st.integers(0, 300), unstarted_tokens=st.integers(0, 9000)), min_size=1)


@given(loads, st.integers(0, 256), st.integers(0, 2000))
def test_top_up_hands_out_what_it_can_and_no_more(held: list[Load], limit: int, waiting: int) -> None:
    shares = top_up(held, limit, waiting)
    room = [max(limit - load.running, 0) for load in held]
    assert all(0 <= share <= free for share, free in zip(shares, room, strict=True))
    assert sum(shares) == min(waiting, sum(room))


@given(loads, st.integers(1, 256), st.integers(1, 2000))
def test_nobody_gets_more_while_another_has_less(held: list[Load], limit: int, waiting: int) -> None:
    shares = top_up(held, limit, waiting)
    after = [load.running + share for load, share in zip(held, shares, strict=True)]
    highest = max((level for level, share in zip(after, shares, strict=True) if share), default=0)
    assert all(level >= min(highest - 1, limit) for level in after)


def test_top_up_by_example() -> None:
    assert top_up([Load(running=10), Load(running=0), Load(running=4)], limit=10, waiting=12) == [0, 8, 4]
    assert top_up([Load(running=10), Load(running=0), Load(running=4)], limit=10, waiting=99) == [0, 10, 6]
    assert top_up([Load(running=12)], limit=10, waiting=5) == [0]
    assert top_up([Load(), Load()], limit=128, waiting=50) == [25, 25]


def test_the_backlog_goes_as_the_load_ends() -> None:
    credit = Credit(batch=128, backlog=64)
    assert [credit.limit(2, waiting) for waiting in (1000, 128, 100, 1)] == [192, 192, 178, 128]


@given(st.lists(st.integers(0, 20), min_size=1))
def test_all_cards_are_dealt_as_counted(counts: list[int]) -> None:
    hands = deal(range(sum(counts)), counts)
    assert [len(hand) for hand in hands] == counts
    assert sorted(card for hand in hands for card in hand) == list(range(sum(counts)))


def test_cards_are_dealt_in_turn() -> None:
    assert deal("abcdef", [2, 0, 4]) == [["a", "c"], [], ["b", "d", "e", "f"]]


@given(loads)
def test_no_replica_has_fewer_tokens_to_start_than_the_one_chosen(held: list[Load]) -> None:
    chosen = held[least_loaded(held)]
    assert all((chosen.unstarted_tokens, chosen.running) <= (load.unstarted_tokens, load.running) for load in held)


def test_running_queries_decide_between_equals() -> None:
    assert least_loaded([Load(3, 50), Load(9, 0), Load(2, 0)]) == 2
    assert least_loaded([Load(0, 50), Load(9, 10)]) == 1


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 4), st.randoms(use_true_random=False))
def test_longest_first_within_a_pass(lengths: list[int], passes: int, random) -> None:
    samples: list[int] = []
    for _ in range(passes):
        one_pass = list(range(len(lengths)))
        random.shuffle(one_pass)
        samples += one_pass
    order = longest_first(np.array(samples), np.array(lengths))
    for number in range(passes):
        part = order[number * len(lengths) : (number + 1) * len(lengths)]
        assert set(part // len(lengths)) == {number}
        sent = [lengths[samples[place]] for place in part]
        assert sent == sorted(sent, reverse=True)
