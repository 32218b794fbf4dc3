"""The token store: prompts as token ids, memory-mapped, so that every process shares one copy.

A store is a folder: `tokens.npy` (int32, all prompts end to end), `offsets.npy` (int64, n + 1 entries),
`targets.json` (the n reference texts; absent where nobody scores) and `manifest.json`, written last.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness_llm.errors import ConfigError, EnvironmentMissing


@dataclass(frozen=True)
class TokenStore:
    """Prompts of one data set.

    Attributes:
        tokens: all token ids, int32.
        offsets: prompt i is `tokens[offsets[i]:offsets[i + 1]]`, int64.
        digest: sha256 over tokens, offsets and targets; names the data set in run.json.
    """

    path: Path
    tokens: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    digest: str

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def prompt(self, index: int) -> npt.NDArray[np.int32]:
        """The token ids of prompt `index`."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def lengths(self) -> npt.NDArray[np.int64]:
        """Token ids per prompt."""
        return np.diff(self.offsets)

    def targets(self) -> list[str]:
        """The reference texts, one per prompt."""
        texts: list[str] = json.loads((self.path / "targets.json").read_text())
        return texts


def write_store(path: Path, prompts: Sequence[Sequence[int]], targets: Sequence[str] | None = None) -> None:
    """Write a store at `path`; a folder without manifest.json is not a store yet."""
    path.mkdir(parents=True, exist_ok=True)
    lengths = np.fromiter((len(p) for p in prompts), dtype=np.int64, count=len(prompts))
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    tokens = np.concatenate([np.asarray(p, dtype=np.int32) for p in prompts])
    np.save(path / "tokens.npy", tokens)
    np.save(path / "offsets.npy", offsets)
    text = json.dumps(targets) if targets is not None else ""
    if targets is not None:
        (path / "targets.json").write_text(text)
    digest = hashlib.sha256(tokens.tobytes() + offsets.tobytes() + text.encode()).hexdigest()
    (path / "manifest.json").write_text(json.dumps({"samples": len(prompts), "sha256": digest}))


def open_store(path: Path, hint: str = "") -> TokenStore:
    """Map the store at `path`; `hint` says what builds it."""
    if not (path / "manifest.json").is_file():
        raise EnvironmentMissing("a data set is not there", where=str(path), hint=hint)
    damaged = ConfigError("a data set is damaged", where=str(path), hint=f"rm -r {path}")
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        samples, digest = manifest["samples"], manifest["sha256"]
        tokens = np.load(path / "tokens.npy", mmap_mode="r")
        offsets = np.load(path / "offsets.npy", mmap_mode="r")
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise damaged from error
    if len(offsets) != samples + 1 or int(offsets[-1]) != len(tokens):
        raise damaged
    return TokenStore(path, tokens, offsets, digest)
