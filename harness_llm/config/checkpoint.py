"""Files, digests and records of checkpoints. Standard library only: quantization environments import it too.

A stage that makes a checkpoint writes its record last: a JSON file, whose `files` has the sha256 of each file.
"""

import hashlib
import json
import os
import re
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness_llm.errors import ConfigError
from harness_llm.fileio import write_atomically

CACHE = ".digests.json"
TRAINING = "manifest.json"  # the record of how the demo's checkpoint was trained
QUANTIZATION = "quantization.json"  # the record of how a checkpoint was quantized
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")  # GPT-J was published in PyTorch's own format
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_BLOCK = 1 << 20
_DIGESTS_AT_ONCE = 8  # one thread hashes about 1 GB/s, and checkpoints have up to 700 GB
LOADED = ("config.json", "generation_config.json", "tokenizer.json")

# model-00001-of-000163.safetensors: the shard's number, and the number of shards.
_SHARD = re.compile(r"-\d+-of-(\d+)(?=\.)")


def model_config(path: Path) -> dict[str, Any]:
    """The config.json of the checkpoint in `path`."""
    config: dict[str, Any] = json.loads((path / "config.json").read_text())
    return config


def quantization_config(path: Path) -> dict[str, Any]:
    """The `quantization_config` of the checkpoint in `path`; empty if it is not quantized."""
    return model_config(path).get("quantization_config") or {}


def weight_files(path: Path) -> list[Path]:
    """Files in the folder `path` that hold weights, by name."""
    return sorted(file for pattern in WEIGHTS for file in path.glob(pattern))


def is_complete(path: Path) -> bool:
    """Return whether the folder `path` contains config.json and all files with weights.

    An index lists the files. Without an index, the names of shards contain their number.
    """
    if not (path / "config.json").is_file():
        return False
    if indexes := [index for name in INDEXES if (index := path / name).is_file()]:
        return any(_has_indexed_files(index) for index in indexes)
    return _has_all_shards(file.name for file in weight_files(path))


def _has_indexed_files(index: Path) -> bool:
    try:
        names = set(json.loads(index.read_text())["weight_map"].values())
    except (ValueError, KeyError):  # a truncated or foreign file
        return False
    return bool(names) and all((index.parent / name).is_file() for name in names)


def _has_all_shards(names: Iterable[str]) -> bool:
    """Return whether `names` contain a file that is no shard, or all shards of a set."""
    sets = Counter(_SHARD.sub(r"-of-\1", name) for name in names)
    expected = {name: int(total[1]) if (total := re.search(r"-of-(\d+)\.", name)) else 1 for name in sets}
    return any(count >= expected[name] for name, count in sets.items())


def checkpoint_digest(path: Path) -> str:
    """sha256 of the checkpoint in the folder `path`: weights, configuration and tokenizer."""
    return hashlib.sha256(json.dumps(checkpoint_files(path)).encode()).hexdigest()


def checkpoint_files(path: Path) -> dict[str, str]:
    """The sha256 of every file in `path` that an engine loads, by name; empty for a missing folder.

    A cache beside the folder has the digests by size and modification time.
    """
    files = sorted([*weight_files(path), *(file for name in LOADED if (file := path / name).is_file())])
    cache = path.parent / CACHE
    known: dict[str, str] = json.loads(cache.read_text()) if cache.is_file() else {}
    keys = {f.name: _key(f) for f in files}
    changed = [file for file in files if keys[file.name] not in known]
    found = dict(zip((keys[file.name] for file in changed), _digests(changed), strict=True))
    known |= found
    if found and os.access(path.parent, os.W_OK):
        _write_cache(cache, known)
    return {name: known[key] for name, key in keys.items()}


def _digests(files: Sequence[Path]) -> list[str]:
    """sha256 of each file, several at a time; an exception, such as that of Ctrl-C, ends all."""
    interrupted = threading.Event()

    def one(file: Path) -> str:
        hasher = hashlib.sha256()
        with file.open("rb") as content:
            while not interrupted.is_set() and (block := content.read(_BLOCK)):
                hasher.update(block)
        return hasher.hexdigest()

    with ThreadPoolExecutor(_DIGESTS_AT_ONCE) as pool:
        try:
            return list(pool.map(one, files))
        finally:
            interrupted.set()


def file_digest(file: Path) -> str:
    """sha256 of one file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def write_record(path: Path, name: str, **facts: Any) -> None:
    """Write the record `name` of the checkpoint in `path`: its files, and `facts`."""
    document = facts | {"files": checkpoint_files(path)}
    (path / name).write_text(json.dumps(document, indent=2) + "\n")


def read_record(path: Path, name: str) -> dict[str, Any] | None:
    """The record `name` of the checkpoint in `path`; None if the checkpoint is missing or incomplete.

    Raises:
        ConfigError: a file differs from its record.
    """
    if not (path / name).is_file():
        return None
    record: dict[str, Any] = json.loads((path / name).read_text())
    found = checkpoint_files(path)
    for file, expected in record["files"].items():
        if found.get(file) != expected:
            raise ConfigError(
                "a checkpoint is damaged",
                where=str(path / file),
                expected=f"sha256 {expected}, recorded in {name}",
                found=found.get(file, "no such file"),
                hint=f"rm -r {path}, then run the same command again",
            )
    return record


def _key(file: Path) -> str:
    facts = file.stat()
    return f"{file.resolve()} {facts.st_size} {facts.st_mtime_ns}"


def _write_cache(cache: Path, known: dict[str, str]) -> None:
    with write_atomically(cache) as temporary:
        temporary.write_text(json.dumps(known, indent=1))
