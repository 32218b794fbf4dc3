"""A sentence splitter for nltk, trained on local texts: tests run without a network."""

import json
from pathlib import Path

import nltk
import pytest
from nltk.tokenize import punkt

from harness_llm.paths import CHECKOUT

GSM8K = Path(__file__).with_name("data") / "gsm8k" / "test.jsonl"
ALL_GSM8K = CHECKOUT.parent / "shared" / "data" / "gsm8k_test.jsonl"
all_texts = (
    pytest.mark.slow,
    pytest.mark.skipif(not ALL_GSM8K.is_file(), reason="no complete GSM8K in ../shared/data"),
)
EVERY_GSM8K = [pytest.param(GSM8K, id="300 questions"), pytest.param(ALL_GSM8K, id="all questions", marks=all_texts)]


def gsm8k(field: str, file: Path = GSM8K) -> list[str]:
    """Questions or answers of GSM8K."""
    return [json.loads(line)[field] for line in file.read_text().splitlines()]


def train(folder: Path, texts: list[str]) -> None:
    """Put punkt_tab below `folder`, which must be one that nltk searches."""
    trainer = punkt.PunktTrainer()
    trainer.train("\n".join(texts))
    target = folder / "tokenizers" / "punkt_tab" / "english"
    target.parent.mkdir(parents=True)
    punkt.save_punkt_params(trainer.get_params(), str(target))


def forget() -> None:
    """Make nltk look for its splitter again."""
    nltk.tokenize._get_punkt_tokenizer.cache_clear()
