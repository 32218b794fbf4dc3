"""What a checkpoint is made of, by sha256. Standard library only: quantization environments import it too.

A stage that makes a checkpoint writes a record last, a JSON file whose `files` are the sha256 of what it made.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from harness_llm.errors import ConfigError
from harness_llm.fileio import write_atomically

CACHE = ".digests.json"
TRAINING = "manifest.json"  # the record of how the demo's checkpoint was trained
QUANTIZATION = "quantization.json"  # the record of how a checkpoint was quantized
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")  # GPT-J was published in PyTorch's own format
LOADED = ("config.json", "generation_config.json", "tokenizer.json")


def model_config(path: Path) -> dict[str, Any]:
    """The config.json of the checkpoint in `path`."""
    config: dict[str, Any] = json.loads((path / "config.json").read_text())
    return config


def quantization_config(path: Path) -> dict[str, Any]:
    """What config.json of the checkpoint in `path` tells engines of its numbers; empty where nothing is quantized."""
    return model_config(path).get("quantization_config") or {}


def weight_files(path: Path) -> list[Path]:
    """Files in the folder `path` that hold weights, by name."""
    return sorted(file for pattern in WEIGHTS for file in path.glob(pattern))


def checkpoint_digest(path: Path) -> str:
    """sha256 that names the checkpoint in the folder `path`: its weights, configuration and tokenizer."""
    return hashlib.sha256(json.dumps(checkpoint_files(path)).encode()).hexdigest()


def checkpoint_files(path: Path) -> dict[str, str]:
    """The sha256 of every file in `path` that an engine loads, by name; a folder that is not there has none.

    Files are hashed once and then known by size and time; what is known lies beside the folder.
    """
    files = sorted([*weight_files(path), *(file for name in LOADED if (file := path / name).is_file())])
    cache = path.parent / CACHE
    known: dict[str, str] = json.loads(cache.read_text()) if cache.is_file() else {}
    keys = {f.name: _key(f) for f in files}
    found = {keys[f.name]: known.get(keys[f.name]) or file_digest(f) for f in files}
    if not found.items() <= known.items() and os.access(path.parent, os.W_OK):
        _remember(cache, known | found)
    return {name: found[key] for name, key in keys.items()}


def file_digest(file: Path) -> str:
    """sha256 of one file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def write_record(path: Path, name: str, **facts: Any) -> None:
    """Write the record `name` of the checkpoint in `path`: its files, and `facts`."""
    document = facts | {"files": checkpoint_files(path)}
    (path / name).write_text(json.dumps(document, indent=2) + "\n")


def read_record(path: Path, name: str) -> dict[str, Any] | None:
    """The record `name` of the checkpoint in `path`; None where the checkpoint is not there or not complete.

    Raises:
        ConfigError: a file is no longer the one that was recorded.
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
                expected=f"sha256 {expected}, as {name} says",
                found=found.get(file, "no such file"),
                hint=f"rm -r {path}, and the same command again makes it anew",
            )
    return record


def _key(file: Path) -> str:
    facts = file.stat()
    return f"{file.resolve()} {facts.st_size} {facts.st_mtime_ns}"


def _remember(cache: Path, known: dict[str, str]) -> None:
    with write_atomically(cache) as temporary:
        temporary.write_text(json.dumps(known, indent=1))
