from hypothesis import given
from hypothesis import strategies as st

from harness_llm.fleet.dispatch import Load, least_loaded, top_up

loads = st.lists(st.builds(Load, running=st.integers(0, 300), unstarted_tokens=st.integers(0, 9000)), min_size=1)


@given(loads, st.integers(0, 256), st.integers(0, 2000))
def test_top_up_hands_out_what_it_can_and_no_more(held: list[Load], credit: int, waiting: int) -> None:
    shares = top_up(held, credit, waiting)
    room = [max(credit - load.running, 0) for load in held]
    assert all(0 <= share <= free for share, free in zip(shares, room, strict=True))
    assert sum(shares) == min(waiting, sum(room))


@given(loads, st.integers(1, 256), st.integers(1, 2000))
def test_the_emptiest_replica_is_filled_first(held: list[Load], credit: int, waiting: int) -> None:
    shares = top_up(held, credit, waiting)
    emptiest = min(load.running for load in held)
    first = next(i for i, load in enumerate(held) if load.running == emptiest)
    assert shares[first] == min(max(credit - emptiest, 0), waiting)


def test_top_up_by_example() -> None:
    assert top_up([Load(running=10), Load(running=0), Load(running=4)], credit=10, waiting=12) == [0, 10, 2]
    assert top_up([Load(running=12)], credit=10, waiting=5) == [0]


@given(loads)
def test_no_replica_has_fewer_tokens_to_start_than_the_one_chosen(held: list[Load]) -> None:
    chosen = held[least_loaded(held)]
    assert all((chosen.unstarted_tokens, chosen.running) <= (load.unstarted_tokens, load.running) for load in held)


def test_running_queries_decide_between_equals() -> None:
    assert least_loaded([Load(3, 50), Load(9, 0), Load(2, 0)]) == 2
    assert least_loaded([Load(0, 50), Load(9, 10)]) == 1
