from hypothesis import given
from hypothesis import strategies as st

from harness_llm.config.in_flight import InFlightLimit
from harness_llm.loadgen.scheduler import DRAIN, Load, fill_to_limit, least_loaded, replicas_to_feed, round_robin

loads = st.lists(st.builds(Load, running=st.integers(0, 300), unstarted_tokens=st.integers(0, 9000)), min_size=1)


@given(loads, st.integers(0, 256), st.integers(0, 2000))
def test_top_up_hands_out_what_it_can_and_no_more(held: list[Load], limit: int, waiting: int) -> None:
    shares = fill_to_limit(held, [limit] * len(held), waiting)
    room = [max(limit - load.running, 0) for load in held]
    assert all(0 <= share <= free for share, free in zip(shares, room, strict=True))
    assert sum(shares) == min(waiting, sum(room))


@given(loads, st.integers(1, 256), st.integers(1, 2000))
def test_nobody_gets_more_while_another_has_less(held: list[Load], limit: int, waiting: int) -> None:
    shares = fill_to_limit(held, [limit] * len(held), waiting)
    after = [load.running + share for load, share in zip(held, shares, strict=True)]
    highest = max((level for level, share in zip(after, shares, strict=True) if share), default=0)
    assert all(level >= min(highest - 1, limit) for level in after)


def test_top_up_by_example() -> None:
    assert fill_to_limit([Load(running=10), Load(running=0), Load(running=4)], limits=[10] * 3, waiting=12) == [0, 8, 4]
    assert fill_to_limit([Load(running=10), Load(running=0), Load(running=4)], limits=[10] * 3, waiting=99) == [
        0,
        10,
        6,
    ]
    assert fill_to_limit([Load(), Load()], limits=[0, 8], waiting=50) == [0, 8]
    assert fill_to_limit([Load(running=12)], limits=[10], waiting=5) == [0]
    assert fill_to_limit([Load(), Load()], limits=[128] * 2, waiting=50) == [25, 25]


def test_the_backlog_goes_as_the_load_ends() -> None:
    in_flight_limit = InFlightLimit(batch=128, backlog=64)
    assert [in_flight_limit.limit(2, waiting) for waiting in (1000, 128, 100, 1)] == [192, 192, 178, 128]


@given(st.lists(st.integers(0, 20), min_size=1))
def test_all_cards_are_dealt_as_counted(counts: list[int]) -> None:
    hands = round_robin(range(sum(counts)), counts)
    assert [len(hand) for hand in hands] == counts
    assert sorted(card for hand in hands for card in hand) == list(range(sum(counts)))


def test_cards_are_dealt_in_turn() -> None:
    assert round_robin("abcdef", [2, 0, 4]) == [["a", "c"], [], ["b", "d", "e", "f"]]


@given(loads)
def test_no_replica_has_fewer_tokens_to_start_than_the_one_chosen(held: list[Load]) -> None:
    chosen = held[least_loaded(held)]
    assert all((chosen.unstarted_tokens, chosen.running) <= (load.unstarted_tokens, load.running) for load in held)


def test_running_queries_decide_between_equals() -> None:
    assert least_loaded([Load(3, 50), Load(9, 0), Load(2, 0)]) == 2
    assert least_loaded([Load(0, 50), Load(9, 10)]) == 1


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=20), st.integers(1, 2000), st.integers(0, 100_000))
def test_the_fastest_are_always_fed_and_the_slowest_are_left_first(
    paces: list[float], limit: int, waiting: int
) -> None:
    fed = replicas_to_feed(paces, limit, waiting)
    assert fed[paces.index(min(paces))]
    assert max(pace for pace, gets in zip(paces, fed, strict=True) if gets) < min(
        (pace for pace, gets in zip(paces, fed, strict=True) if not gets), default=float("inf")
    )


def test_a_slow_replica_is_left_alone_before_the_others() -> None:
    """Two replicas of 100 queries, one twice as slow: it is left where what waits lasts the other's own drain."""
    paces = [1.0, 2.0]
    last = 100 * DRAIN * (2 - 1)  # what the fast one takes from then on
    assert replicas_to_feed(paces, 100, round(last) + 2) == [True, True]
    assert replicas_to_feed(paces, 100, round(last) - 2) == [True, False]
    assert replicas_to_feed([1.0, 0.0], 100, 1) == [True, True]
    assert replicas_to_feed([1.0, 1.0], 100, 1) == [True, True]
