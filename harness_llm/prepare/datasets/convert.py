"""A published file becomes a token store, once."""

from pathlib import Path
from typing import Any

from harness_llm.config.checkpoint import file_digest
from harness_llm.errors import ConfigError
from harness_llm.prepare.datasets.encoder import load_encoder
from harness_llm.prepare.datasets.samples import token_ids
from harness_llm.prepare.datasets.sources import SOURCES
from harness_llm.protocol.token_store import origin, write_store


def store_path(file: Path) -> Path:
    """Where the store of the source file `file` stands: beside it."""
    return file.with_suffix(".store")


def is_converted(source: str, file: Path, tokenizer: Path, longest_prompt: int) -> bool:
    """Whether `convert` would leave the store as it is: made as now asked, from the file that is there."""
    made = origin(store_path(file))
    if (made.get("source"), made.get("longest_prompt")) != (source, longest_prompt) or not file.is_file():
        return False
    if made["tokenizer"] and (not tokenizer.is_file() or file_digest(tokenizer) != made["tokenizer"]):
        return False
    # A file is known by size and time; one that was only copied or touched is hashed.
    return _facts(file).items() <= made.items() or file_digest(file) == made["sha256"]


def convert(source: str, file: Path, tokenizer: Path, longest_prompt: int) -> Path:
    """Convert `file` to a store, unless that was done; returns the store.

    Args:
        source: a name in SOURCES.
        file: the published file, its checksum verified.
        tokenizer: tokenizer.json of the benchmark; used only where the file has texts, no token ids.
        longest_prompt: token ids; a longer prompt is an error, a longer text is cut, as in the reference of gptj.

    Raises:
        ConfigError: the file is not what `source` says.
        EnvironmentMissing: the store cannot be written, or the tokenizer is needed and not there.
    """
    store = store_path(file)
    if is_converted(source, file, tokenizer, longest_prompt):
        return store
    if source not in SOURCES:
        raise ConfigError(
            f"there is no data source {source}", where="dataset.source", expected=", ".join(sorted(SOURCES))
        )
    samples = SOURCES[source](file)
    made: dict[str, Any] = {"source": source, "longest_prompt": longest_prompt, "tokenizer": ""} | _facts(file)
    rows = samples.prompts
    if not samples.encoded:
        rows = load_encoder(tokenizer, longest_prompt)(rows)
        made["tokenizer"] = file_digest(tokenizer)
    prompts = token_ids(rows, longest_prompt, file, samples.column)
    write_store(store, prompts, samples.targets, samples.kinds, made | {"sha256": file_digest(file)})
    return store


def _facts(file: Path) -> dict[str, int]:
    facts = file.stat()
    return {"size": facts.st_size, "mtime_ns": facts.st_mtime_ns}
