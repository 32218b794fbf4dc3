"""What a source file holds, before it becomes a token store."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness_llm.errors import ConfigError


@dataclass(frozen=True)
class Samples:
    """The samples of one file, in its order, which is LoadGen's.

    Attributes:
        column: where the prompts stand in the file, for messages.
        prompts: token ids; texts where `encoded` is false, which the benchmark's tokenizer turns into ids.
        targets: reference texts, or whatever scoring needs for the sample; None where the file has none.
        kinds: of the samples, where scoring tells several apart.
    """

    column: str
    prompts: Sequence[Any]
    targets: Sequence[str] | None = None
    kinds: Sequence[str] | None = None
    encoded: bool = True


def token_ids(rows: Sequence[Any], longest: int, file: Path, column: str) -> list[npt.NDArray[np.int32]]:
    """The prompts as arrays, each of 1 to `longest` token ids.

    Raises:
        ConfigError: one is not; file, column and row are named.
    """
    found = []
    for row, prompt in enumerate(rows):
        ids = _array(prompt)
        fault = _fault(ids, longest)
        if fault:
            raise ConfigError(
                "a prompt is not what the benchmark says",
                where=f"{file}, column {column}, row {row}",
                expected=f"a list of 1 to {longest} token ids",
                found=fault,
            )
        found.append(ids.astype(np.int32))
    if not found:
        raise ConfigError("a data set has no samples", where=str(file), found="no rows")
    return found


def _array(prompt: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(prompt)
    except ValueError:  # lists of unequal lengths
        return np.asarray(None)


def _fault(ids: npt.NDArray[Any], longest: int) -> str:
    if ids.ndim == 1 and not ids.size:
        return "no token ids"
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() > np.iinfo(np.int32).max:
        return "something else than token ids"
    return f"{len(ids)} token ids" if len(ids) > longest else ""
