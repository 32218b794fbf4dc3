import pytest

from harness_llm.replicas.pool import MAX_SHORT_RUNS, SHORT_S, may_restart


@pytest.mark.parametrize(
    ("lives", "worth"),
    [
        ([], True),
        ([0.0] * (MAX_SHORT_RUNS - 1), True),
        ([0.0] * MAX_SHORT_RUNS, False),
        ([SHORT_S - 1] * MAX_SHORT_RUNS, False),
        ([SHORT_S + 1, 0.0, 0.0, 0.0], False),
        ([0.0, 0.0, SHORT_S + 1], True),
        ([0.0, 0.0, SHORT_S + 1, 0.0, 0.0], True),
        ([SHORT_S + 1] * 100, True),
    ],
)
def test_what_never_lasts_is_given_up(lives: list[float], worth: bool) -> None:
    assert may_restart(lives) is worth
