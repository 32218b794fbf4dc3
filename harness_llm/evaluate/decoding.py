"""Answers as texts, as the references' AutoTokenizer.batch_decode(skip_special_tokens=True) gives them."""

import json
from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer

# transformers, PreTrainedTokenizerBase.clean_up_tokenization, in this order.
_TIDIED = (
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
    """What turns lists of ids into texts by the tokenizer of `checkpoint`, special tokens left out.

    Spaces before punctuation go where its tokenizer_config.json says so, as with Llama 3.1.
    """
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))

    def decode(answers: list[list[int]]) -> list[str]:
        texts: list[str] = tokenizer.decode_batch(answers, skip_special_tokens=True)
        return [tidied(text) for text in texts] if _tidies(checkpoint) else texts

    return decode


def tidied(text: str) -> str:
    """`text` without spaces before punctuation and short forms."""
    for found, replacement in _TIDIED:
        text = text.replace(found, replacement)
    return text


def _tidies(checkpoint: Path) -> bool:
    file = checkpoint / "tokenizer_config.json"
    return file.is_file() and json.loads(file.read_text()).get("clean_up_tokenization_spaces") is True
