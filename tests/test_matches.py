import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_llm.evaluate.matches import exact, gsm8k, niah_em, qa_em

A = "01234567-89ab-4cde-8f01-23456789abcd"
B = "ffffffff-ffff-4fff-8fff-ffffffffffff"


@pytest.mark.parametrize(
    ("target", "prediction", "percent"),
    [
        (A, f"It is {A}.", 100.0),
        (A, f"It is {A.upper()}.", 100.0),
        (A, "no needle", 0.0),
        (A, f"{A} {B}", 50.0),  # one too many costs
        (f"{A} {B}", A, 100.0),  # a missing needle costs nothing in the reference
        ("no needle", A, 0.0),
        (A, B, 30.56),  # what is wrong earns what it shares: 11 of 36 are "4", "8", "f" or hyphens
        (f"{A} {B}", f"{B} {A}", 65.28),  # in another order: 11 and all 36 of 36
    ],
)
def test_niah_scores_found_needles(target: str, prediction: str, percent: float) -> None:
    assert niah_em(target, prediction) == percent


@pytest.mark.parametrize(
    ("target", "prediction", "right"),
    [
        ("Paris", "Answer: Paris", True),
        ("Paris", "Answer: London. Answer: Paris", True),
        ("Paris", "Answer: Paris. Answer: London", False),
        ("Paris", "paris", True),
        ("Paris", "Answer: It is P a\nris, of course", True),
        ("Paris, France", "Answer: Paris", True),  # a part of the target
        ("Lutetia|Paris", "Answer: paris", True),
        ("Lutetia|Paris", "Answer: London", False),
        ("Paris", "Answer: ", True),  # the empty text is part of every text
        ("Paris", "", True),
        ("Paris|", "Answer: London", True),  # every text contains the empty text
        ("Paris", "Answer:London", False),
    ],
)
def test_qa_scores_matching_answers(target: str, prediction: str, right: bool) -> None:
    assert qa_em(target, prediction) == 100.0 * right


@pytest.mark.parametrize(
    ("target", "prediction", "right"),
    [
        ("18", "She makes 9 * 2 = 18", True),
        ("18", "The answer is 18. Or 19", True),
        ("18", "The answer is 19. The answer is $18.", True),
        ("18", "9 then 18. The answer is unknown", True),
        ("18", "18 is not it, 19", False),
        ("18", "18\nQ: 3 and 4?\nA: 7", True),
        ("18", "The answer is 18\nQ: What?\nThe answer is 7", True),
        ("1000", "1,000", True),
        ("1,000", "1000", False),  # a target with a comma is no number
        ("-3.5", "The answer is -3.5", True),
        (".5", "0.5", True),
        ("18.0", "18", True),
        ("18", "eighteen", False),
        ("18", "", False),
        ("", "18", False),
    ],
)
def test_gsm8k_scores_the_last_number(target: str, prediction: str, right: bool) -> None:
    assert gsm8k(target, prediction) == 100.0 * right


@pytest.mark.parametrize(
    ("target", "prediction", "right"), [(" a\n", "a", True), ("a", "A", False), ("a b", "a  b", False)]
)
def test_exact_match_compares_texts(target: str, prediction: str, right: bool) -> None:
    assert exact(target, prediction) == 100.0 * right


HEX = st.text("0123456789abcdefABCDEF", min_size=32, max_size=32)
NEEDLES = st.lists(HEX.map(lambda h: "-".join((h[:8], h[8:12], h[12:16], h[16:20], h[20:]))), max_size=4)


@given(NEEDLES, NEEDLES)
def test_niah_scores_equal_those_of_the_reference(wanted: list[str], found: list[str]) -> None:
    share = 0.0
    for index in range(min(len(wanted), len(found))):
        characters = set(found[index].lower())
        share += len([c for c in wanted[index].lower() if c in characters]) / 36
    expected = round(share / len(found) * 100, 2) if found else 0.0
    assert niah_em(" and ".join(wanted), "; ".join(found)) == pytest.approx(expected, abs=0.011)


PROSE = st.text("abc $:=?\n", max_size=12)


@given(PROSE, st.integers(), PROSE, st.integers(-(10**6), 10**6), PROSE)
def test_last_number_of_an_answer_counts(before: str, first: int, between: str, last: int, after: str) -> None:
    text = f"{before}{first} {between} {last:,}{after}"
    assert gsm8k(f"{last}.0", text) == 100.0
    assert gsm8k(str(last + 1), text) == 0.0
    assert gsm8k(str(first), f"The answer is {before}{text}") == 100.0
