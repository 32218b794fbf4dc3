"""Cost of records: blocks of one run with and without them."""

import pytest

from benchmarks.alternating import BLOCK_S, AlternatingLog
from benchmarks.record_cost import losses_of

RATE, SECONDS = 1000, 20.0


def alternated(with_records: float) -> tuple[AlternatingLog, int]:
    """A log of a system that answers `with_records` as many queries while they are recorded, and its answers."""
    log, at, answers = AlternatingLog(), 0.0, 0
    while at < SECONDS:
        log.finish([answers], [2], at)
        recorded = log._recorded[-1]
        at += 1 / (RATE * (with_records if recorded else 1))
        answers += 1
    return log, answers


def test_half_of_the_blocks_is_recorded() -> None:
    log, answers = alternated(1)
    queries, _, _ = log._finished.read()
    assert len(queries) == pytest.approx(answers / 2, rel=0.03)
    assert len(log.pairs()) == pytest.approx(SECONDS / BLOCK_S / 2, abs=5)


@pytest.mark.parametrize("loss", [0.0, 0.02, 0.1])
def test_loss_is_the_difference_between_neighbouring_blocks(loss: float) -> None:
    log, _ = alternated(1 - loss)
    losses = losses_of(log.pairs())
    assert sum(losses) / len(losses) == pytest.approx(loss, abs=0.008)


def test_blocks_without_answers_count() -> None:
    assert losses_of([(0, 10), (10, 10)]) == pytest.approx([10 / 7.5, 0])
