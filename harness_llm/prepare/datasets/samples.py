"""Samples of a source file before they are written to a token store."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness_llm.errors import ConfigError


@dataclass(frozen=True)
class Samples:
    """Samples of one file in file order, which is LoadGen's sample index.

    Attributes:
        column: column of the prompts, for messages.
        prompts: token ids, or strings to encode where `encoded` is false.
        targets: reference answers, or other scoring data of each sample; None where the file has none.
        kinds: kind of each sample, where the scoring depends on it.
    """

    column: str
    prompts: Sequence[Any]
    targets: Sequence[str] | None = None
    kinds: Sequence[str] | None = None
    encoded: bool = True


def token_ids(
    rows: Sequence[Any], longest: int, file: Path, column: str, *, truncate: bool = False
) -> list[npt.NDArray[np.int32]]:
    """Return the prompts as int32 arrays of 1 to `longest` token ids.

    Raises:
        ConfigError: a prompt is empty, too long or not token ids; `where` is file, column and row.
    """
    found = []
    for row, prompt in enumerate(rows):
        ids = _array(prompt)
        if truncate and ids.ndim == 1:
            ids = ids[:longest]
        fault = _fault(ids, longest)
        if fault:
            raise ConfigError(
                "invalid prompt",
                where=f"{file}, column {column}, row {row}",
                expected=f"a list of 1 to {longest} token ids",
                found=fault,
            )
        found.append(ids.astype(np.int32))
    if not found:
        raise ConfigError("empty data set", where=str(file), found="no rows")
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
        return "other values than token ids"
    return f"{len(ids)} token ids" if len(ids) > longest else ""
