"""Decode answers like AutoTokenizer.batch_decode(skip_special_tokens=True), which the reference scripts use."""

import json
from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer

# transformers, PreTrainedTokenizerBase.clean_up_tokenization, in this order.
_REPLACEMENTS = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


def decoder(checkpoint: Path) -> Callable[[list[list[int]]], list[str]]:
    """Return a function that decodes lists of token ids with the tokenizer of `checkpoint`, without special tokens.

    Spaces before punctuation are removed if tokenizer_config.json sets clean_up_tokenization_spaces (Llama 3.1).
    """
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))

    def decode(answers: list[list[int]]) -> list[str]:
        texts: list[str] = tokenizer.decode_batch(answers, skip_special_tokens=True)
        return [clean_up(text) for text in texts] if _cleans_up(checkpoint) else texts

    return decode


def clean_up(text: str) -> str:
    """Remove spaces before punctuation and English contractions."""
    for found, replacement in _REPLACEMENTS:
        text = text.replace(found, replacement)
    return text


def _cleans_up(checkpoint: Path) -> bool:
    file = checkpoint / "tokenizer_config.json"
    return file.is_file() and json.loads(file.read_text()).get("clean_up_tokenization_spaces") is True
