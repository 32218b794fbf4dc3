"""A sentence splitter for nltk, trained on the texts at hand: its own data cannot be fetched where tests run."""

import json
from pathlib import Path

import nltk
from nltk.tokenize import punkt

GSM8K = Path(__file__).resolve().parents[2] / "shared" / "data" / "gsm8k_test.jsonl"


def gsm8k(field: str) -> list[str]:
    """The questions or the answers of GSM8K."""
    return [json.loads(line)[field] for line in GSM8K.read_text().splitlines()]


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
