"""Token ids of texts, as a model's tokenizer makes them by default."""

from collections.abc import Callable, Sequence
from pathlib import Path

from harness_llm.errors import EnvironmentMissing

Encode = Callable[[Sequence[str]], list[list[int]]]


def load_encoder(file: Path, longest: int | None = None) -> Encode:
    """The encoder of tokenizer.json `file`, with the special tokens that it adds; ids after `longest` are cut off.

    Raises:
        EnvironmentMissing: the file is not there.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - few data sets need it

    if not file.is_file():
        raise EnvironmentMissing(
            "there is no tokenizer to encode the prompts with", where=str(file), hint="download the model first"
        )
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    if longest is None:
        tokenizer.no_truncation()
    else:
        tokenizer.enable_truncation(longest)
    return lambda texts: [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]
