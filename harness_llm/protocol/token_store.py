"""The token store: prompts as token ids and their reference texts, memory-mapped, so that all processes share one copy.

A store is a folder: `tokens.npy` (int32, all prompts end to end) with `tokens_offsets.npy` (int64, n + 1 entries); the
reference texts as UTF-8 in `targets.npy` with `targets_offsets.npy`, absent where nobody scores; `kinds.npy`, places in
the manifest's list of kinds, absent where there is but one; and `manifest.json`, written last.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.fileio import replacing

Ids = Sequence[int] | npt.NDArray[np.int32]
"""Token ids."""

_MANIFEST = "manifest.json"
_TOKENS, _TARGETS, _KINDS = "tokens", "targets", "kinds"


class Prompts(Protocol):
    """Prompts that replicas are asked; a `TokenStore`, or others in memory."""

    def prompt(self, index: int) -> npt.NDArray[np.int32]:
        """The token ids of prompt `index`."""

    def lengths(self) -> npt.NDArray[np.int64]:
        """Token ids per prompt."""

    def kinds(self) -> list[str]:
        """The kind of each sample."""


@dataclass(frozen=True)
class TokenStore:
    """The samples of one data set.

    Attributes:
        tokens: all token ids, int32.
        offsets: prompt i is `tokens[offsets[i]:offsets[i + 1]]`, int64.
        digest: sha256 over prompts, targets and kinds; names the data set in run.json.
    """

    path: Path
    tokens: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    digest: str
    manifest: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def prompt(self, index: int) -> npt.NDArray[np.int32]:
        """The token ids of prompt `index`."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def lengths(self) -> npt.NDArray[np.int64]:
        """Token ids per prompt."""
        return np.diff(self.offsets)

    def targets(self) -> list[str]:
        """The reference texts, one per prompt; empty ones where the data set has none."""
        if not self.manifest[_TARGETS]:
            return [""] * len(self)
        letters, offsets = _load_ragged(self.path, _TARGETS, len(self))
        text = letters.tobytes()
        return [text[begin:end].decode() for begin, end in pairwise(offsets.tolist())]

    def kinds(self) -> list[str]:
        """The kind of each sample; empty where the data set has but one."""
        names = self.manifest[_KINDS]
        if not names:
            return [""] * len(self)
        places = _load(self.path, _KINDS)
        if len(places) != len(self):
            raise _damaged(self.path)
        return [names[place] for place in places.tolist()]


def write_store(
    path: Path,
    prompts: Sequence[Ids],
    targets: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    made_from: Mapping[str, Any] | None = None,
) -> None:
    """Write a store aside and put it at `path`; it replaces the one there.

    Args:
        path: the folder.
        prompts: token ids of each.
        targets: a reference text for each prompt.
        kinds: of the samples, where scoring tells several apart.
        made_from: kept in the manifest, for `origin`.

    Raises:
        EnvironmentMissing: it cannot be written; the disk is full, for one.
    """
    arrays = _ragged(_TOKENS, [np.asarray(prompt, dtype=np.int32) for prompt in prompts], np.int32)
    if targets is not None:
        arrays |= _ragged(_TARGETS, [np.frombuffer(text.encode(), dtype=np.uint8) for text in targets], np.uint8)
    names: list[str] = []
    if kinds is not None:
        names = sorted(set(kinds))
        arrays[_KINDS] = np.asarray([names.index(kind) for kind in kinds], dtype=np.uint8)
    manifest = {
        "samples": len(prompts),
        "sha256": _digest(arrays, names),
        _TARGETS: targets is not None,
        _KINDS: names,
        "made_from": made_from,
    }
    try:
        with replacing(path) as folder:
            for name, array in arrays.items():
                np.save(_file(folder, name), array)
            (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    except OSError as error:
        raise EnvironmentMissing(
            "a data set cannot be written", where=str(path), found=str(error), hint=f"make room below {path.parent}"
        ) from error


def is_store(path: Path) -> bool:
    """Whether `path` looks like one, whole or not."""
    return (path / _MANIFEST).is_file() and _file(path, _TOKENS).is_file()


def open_store(path: Path, hint: str = "") -> TokenStore:
    """Map the store at `path`; `hint` says what builds it.

    Raises:
        EnvironmentMissing: there is none.
        ConfigError: it is damaged.
    """
    if not (path / _MANIFEST).is_file():
        raise EnvironmentMissing("a data set is not there", where=str(path), hint=hint)
    try:
        manifest = json.loads((path / _MANIFEST).read_text())
        samples, digest, _, _ = (manifest[key] for key in ("samples", "sha256", _TARGETS, _KINDS))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path) from error
    tokens, offsets = _load_ragged(path, _TOKENS, samples)
    return TokenStore(path, tokens, offsets, digest, manifest)


def origin(path: Path) -> dict[str, Any]:
    """What the store at `path` says it was made from; nothing where there is no store, or a damaged one."""
    try:
        return dict(open_store(path).manifest["made_from"] or {})
    except (EnvironmentMissing, ConfigError, KeyError):
        return {}


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"


def _offsets(name: str) -> str:
    return f"{name}_offsets"


def _ragged(name: str, rows: Sequence[npt.NDArray[Any]], dtype: type) -> dict[str, npt.NDArray[Any]]:
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    values = np.concatenate([np.zeros(0, dtype), *rows])
    return {name: values, _offsets(name): np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)}


def _digest(arrays: Mapping[str, npt.NDArray[Any]], kinds: Sequence[str]) -> str:
    digest = hashlib.sha256(json.dumps([[name, len(array)] for name, array in arrays.items()]).encode())
    for array in arrays.values():
        digest.update(np.ascontiguousarray(array).data)
    digest.update(json.dumps(kinds).encode())
    return digest.hexdigest()


def _load(path: Path, name: str) -> npt.NDArray[Any]:
    try:
        # As a plain array, of which a slice costs a tenth.
        return np.load(_file(path, name), mmap_mode="r").view(np.ndarray)  # type: ignore[no-any-return]
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path) from error


def _load_ragged(path: Path, name: str, rows: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    values, offsets = _load(path, name), _load(path, _offsets(name))
    if len(offsets) != rows + 1 or (offsets[0], offsets[-1]) != (0, len(values)) or np.any(np.diff(offsets) < 0):
        raise _damaged(path)
    return values, offsets


def _damaged(path: Path) -> ConfigError:
    return ConfigError("a data set is damaged", where=str(path), hint=f"rm -r {path}")
