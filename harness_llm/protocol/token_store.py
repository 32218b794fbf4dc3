"""Token store: prompts as token ids, and reference texts; memory-mapped, so that all processes share one copy.

A store is a folder: `tokens.npy` (int32, all prompts concatenated) with `tokens_offsets.npy` (int64, n + 1 entries);
optional reference texts as UTF-8 in `targets.npy` with `targets_offsets.npy`; optional `kinds.npy`, indices into the
manifest's list of kinds; and `manifest.json`, written last.
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
    """Source of prompts: a `TokenStore`, or prompts in memory."""

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
        digest: sha256 over prompts, targets and kinds; identifies the data set in run.json.
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
        """Return the reference texts, one per prompt; empty strings if the data set has none."""
        if not self.manifest[_TARGETS]:
            return [""] * len(self)
        letters, offsets = _load_ragged(self.path, _TARGETS, len(self))
        text = letters.tobytes()
        return [text[begin:end].decode() for begin, end in pairwise(offsets.tolist())]

    def kinds(self) -> list[str]:
        """Return the kind of each sample; empty strings if the data set has a single kind."""
        names = self.manifest[_KINDS]
        if not names:
            return [""] * len(self)
        indices = _load(self.path, _KINDS)
        if len(indices) != len(self):
            raise _damaged(self.path)
        return [names[index] for index in indices.tolist()]


def write_store(
    path: Path,
    prompts: Sequence[Ids],
    targets: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    made_from: Mapping[str, Any] | None = None,
) -> None:
    """Write a store at `path` atomically; replaces an existing one.

    Args:
        path: the folder.
        prompts: token ids of each.
        targets: reference text of each prompt.
        kinds: of the samples, where scoring distinguishes several.
        made_from: written to the manifest, for `origin`.

    Raises:
        EnvironmentMissing: OS error, for example a full disk.
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
            "data set not written", where=str(path), found=str(error), hint=f"free disk space in {path.parent}"
        ) from error


def is_store(path: Path) -> bool:
    """Return whether `path` contains a store, complete or not."""
    return (path / _MANIFEST).is_file() and _file(path, _TOKENS).is_file()


def open_store(path: Path, hint: str = "") -> TokenStore:
    """Map the store at `path`; `hint` names the command that builds it.

    Raises:
        EnvironmentMissing: the store does not exist.
        ConfigError: the store is damaged.
    """
    if not (path / _MANIFEST).is_file():
        raise EnvironmentMissing("missing data set", where=str(path), hint=hint)
    try:
        manifest = json.loads((path / _MANIFEST).read_text())
        samples, digest, _, _ = (manifest[key] for key in ("samples", "sha256", _TARGETS, _KINDS))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path) from error
    tokens, offsets = _load_ragged(path, _TOKENS, samples)
    return TokenStore(path, tokens, offsets, digest, manifest)


def origin(path: Path) -> dict[str, Any]:
    """Return the store's `made_from`; empty if the store is missing or damaged."""
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
        # A plain array: slicing it takes a tenth of the time of slicing a memmap.
        return np.load(_file(path, name), mmap_mode="r").view(np.ndarray)  # type: ignore[no-any-return]
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path) from error


def _load_ragged(path: Path, name: str, rows: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    values, offsets = _load(path, name), _load(path, _offsets(name))
    if len(offsets) != rows + 1 or (offsets[0], offsets[-1]) != (0, len(values)) or np.any(np.diff(offsets) < 0):
        raise _damaged(path)
    return values, offsets


def _damaged(path: Path) -> ConfigError:
    return ConfigError("damaged data set", where=str(path), hint=f"rm -r {path}")
