"""How two engines' answers are held against each other."""

import pytest

from benchmarks.engines import Pass, Served, compare

ANSWERS = [[5, 2], [6, 7, 2], [8, 2], [9, 2]]


def served(alone: list[list[int]], loaded: list[list[int]], rouge: float) -> Served:
    return Served(Pass(alone, 2.0, {}), Pass(loaded, 2.0, {}), dict.fromkeys(("ROUGE1", "ROUGE2", "ROUGEL"), rouge))


@pytest.mark.parametrize(
    ("alone", "loaded", "rouge", "good"),
    [
        (ANSWERS, ANSWERS, 98.0, True),
        (ANSWERS, [[5, 5, 2], *ANSWERS[1:]], 98.15, True),
        (ANSWERS, ANSWERS, 98.25, False),
        ([[5, 5, 2], *ANSWERS[1:]], ANSWERS, 98.0, False),
    ],
)
def test_answers_alone_are_equal_and_scores_under_load_are_close(
    alone: list[list[int]], loaded: list[list[int]], rouge: float, *, good: bool
) -> None:
    assert compare(served(ANSWERS, ANSWERS, 98.0), served(alone, loaded, rouge)).good is good


def test_share_of_differing_answers() -> None:
    found = compare(served(ANSWERS, ANSWERS, 1), served(ANSWERS, [[5, 5, 2], *ANSWERS[1:]], 1))
    assert (found.same_alone, found.differing_loaded) == (4, 0.25)


def test_tokens_per_second() -> None:
    assert Pass(ANSWERS, 2.0, None).tokens_per_second == 4.5
