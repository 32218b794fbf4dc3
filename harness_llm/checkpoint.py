"""What a checkpoint is made of, by sha256. Standard library only: quantization environments import it too."""

import hashlib
import json
from pathlib import Path

CACHE = ".digests.json"
LOADED = ("config.json", "generation_config.json", "tokenizer.json")


def checkpoint_digest(path: Path) -> str:
    """sha256 that names the checkpoint in the folder `path`: its weights, configuration and tokenizer."""
    return hashlib.sha256(json.dumps(checkpoint_files(path)).encode()).hexdigest()


def checkpoint_files(path: Path) -> dict[str, str]:
    """The sha256 of every file in `path` that an engine loads, by name.

    Files are hashed once and then known by size and time; what is known lies beside the folder.
    """
    cache = path.parent / CACHE
    known: dict[str, str] = json.loads(cache.read_text()) if cache.is_file() else {}
    files = sorted(f for f in path.iterdir() if f.suffix == ".safetensors" or f.name in LOADED)
    keys = {f: _key(f) for f in files}
    found = {keys[f]: known.get(keys[f]) or _sha256(f) for f in files}
    if not found.items() <= known.items():
        _remember(cache, known | found)
    return {f.name: found[keys[f]] for f in files}


def _key(file: Path) -> str:
    facts = file.stat()
    return f"{file.resolve()} {facts.st_size} {facts.st_mtime_ns}"


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _remember(cache: Path, known: dict[str, str]) -> None:
    temporary = cache.with_name(f"{cache.name}.tmp")
    temporary.write_text(json.dumps(known, indent=1))
    temporary.rename(cache)
