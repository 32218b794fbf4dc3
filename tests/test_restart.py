import pytest

from harness_llm.replicas.restart import ATTEMPTS, SHORT_S, worth_another


@pytest.mark.parametrize(
    ("lives", "worth"),
    [
        ([], True),
        ([0.0] * (ATTEMPTS - 1), True),
        ([0.0] * ATTEMPTS, False),
        ([SHORT_S - 1] * ATTEMPTS, False),
        ([SHORT_S + 1, 0.0, 0.0, 0.0], False),
        ([0.0, 0.0, SHORT_S + 1], True),
        ([0.0, 0.0, SHORT_S + 1, 0.0, 0.0], True),
        ([SHORT_S + 1] * 100, True),
    ],
)
def test_replica_that_repeatedly_fails_early_is_not_restarted(lives: list[float], worth: bool) -> None:
    assert worth_another(lives) is worth
