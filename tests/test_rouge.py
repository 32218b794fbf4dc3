import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from punkt import EVERY_GSM8K, gsm8k
from rouge_score.rouge_scorer import RougeScorer

from harness_llm.evaluate.rouge import score

ORACLE = RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=True)
WITHOUT_SENTENCES = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)


def assert_equal(target: str, prediction: str, oracle: RougeScorer = ORACLE) -> None:
    expected = {kind.upper(): value.fmeasure for kind, value in oracle.score(target, prediction).items()}
    found = dict(zip(expected, score(target, prediction, list(expected)), strict=True))
    assert found == pytest.approx(expected, rel=0, abs=1e-12)


@pytest.mark.parametrize(
    ("target", "prediction"),
    [
        ("", ""),
        ("", "a cat"),
        ("a cat", "..."),
        ("cat", "cat"),
        ("\n\n", "\n"),
        ("The cats were running.\nThe dog sleeps.", "A cat runs.\nThe dogs slept, the cat ran."),
        ("one two three four", "four three two one"),
        ("a b a b a b", "b a b a"),
        ("a\nb\na b", "a b\n\na"),
        ("Café naïve İstanbul 3.14 can't", "cafe naive istanbul 3 14 can t"),
        ("dying skies proceeding news", "die sky proceed new"),
    ],
)
def test_scores_equal_those_of_rouge_score(target: str, prediction: str) -> None:
    assert_equal(target, prediction)


_WORDS = st.text(alphabet="ab \n.", max_size=40)


@given(_WORDS, _WORDS)
def test_ties_are_resolved_as_by_rouge_score(target: str, prediction: str) -> None:
    assert_equal(target, prediction)


@pytest.mark.parametrize("file", EVERY_GSM8K)
def test_scores_of_real_texts_equal_those_of_rouge_score(file: Path) -> None:
    texts = [text.replace(". ", ".\n") for field in ("answer", "question") for text in gsm8k(field, file)]
    generator = random.Random(0)  # noqa: S311
    for index, target in enumerate(texts):
        words = target.split(" ")
        generator.shuffle(words)
        kept = words[: len(words) // 3] + texts[index - 1].split(" ")[: len(words) // 2]
        assert_equal(target, target[: len(target) // 2] + " ".join(kept), WITHOUT_SENTENCES if index % 8 else ORACLE)
