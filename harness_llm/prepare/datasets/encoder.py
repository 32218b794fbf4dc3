"""Encode texts with a model's tokenizer."""

from collections.abc import Callable, Sequence
from pathlib import Path

from harness_llm.config.commands import command
from harness_llm.errors import EnvironmentMissing

Encode = Callable[[Sequence[str]], list[list[int]]]


def load_encoder(file: Path, longest: int | None = None) -> Encode:
    """Return an encoder for tokenizer.json `file` that adds special tokens and truncates to `longest` ids.

    Raises:
        EnvironmentMissing: `file` is missing.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - import on demand

    if not file.is_file():
        hint = command("download", model="NAME", part="model")
        raise EnvironmentMissing("missing tokenizer", where=str(file), hint=hint)
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    if longest is None:
        tokenizer.no_truncation()
    else:
        tokenizer.enable_truncation(longest)
    return lambda texts: [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]
