"""Convert published data set files to token stores."""

from pathlib import Path
from typing import Any

from harness_llm.config.checkpoint import file_digest
from harness_llm.errors import ConfigError
from harness_llm.prepare.datasets.encoder import load_encoder
from harness_llm.prepare.datasets.samples import token_ids
from harness_llm.prepare.datasets.sources import SOURCES
from harness_llm.protocol.token_store import origin, write_store


def store_path(file: Path) -> Path:
    """Return the path of the store of a source file, in the same folder."""
    return file.with_suffix(".store")


def is_converted(source: str, file: Path, tokenizer: Path, longest_prompt: int) -> bool:
    """Return whether the store exists and was made from this file, tokenizer and length limit."""
    made = origin(store_path(file))
    if (made.get("source"), made.get("longest_prompt")) != (source, longest_prompt) or not file.is_file():
        return False
    if made["tokenizer"] and (not tokenizer.is_file() or file_digest(tokenizer) != made["tokenizer"]):
        return False
    # Compare size and time first; hash only a file that was copied or touched.
    return _facts(file).items() <= made.items() or file_digest(file) == made["sha256"]


def convert(source: str, file: Path, tokenizer: Path, longest_prompt: int, *, truncate: bool = False) -> Path:
    """Convert `file` to a store unless it is current; return the store's path.

    Args:
        source: key of SOURCES.
        file: published file with a verified checksum.
        tokenizer: tokenizer.json of the benchmark, used for files with texts instead of token ids.
        longest_prompt: limit in token ids. A longer prompt is an error; a longer text is truncated (reference of gptj).
        truncate: truncate longer prompts too, for calibration sets: their prompts are not measured.

    Raises:
        ConfigError: the content does not match `source`.
        EnvironmentMissing: the store cannot be written, or the tokenizer is missing.
    """
    store = store_path(file)
    if is_converted(source, file, tokenizer, longest_prompt):
        return store
    if source not in SOURCES:
        raise ConfigError(f"unknown data source {source}", where="dataset.source", expected=", ".join(sorted(SOURCES)))
    samples = SOURCES[source](file)
    made: dict[str, Any] = {"source": source, "longest_prompt": longest_prompt, "tokenizer": ""} | _facts(file)
    rows = samples.prompts
    if not samples.encoded:
        rows = load_encoder(tokenizer, longest_prompt)(rows)
        made["tokenizer"] = file_digest(tokenizer)
    prompts = token_ids(rows, longest_prompt, file, samples.column, truncate=truncate)
    write_store(store, prompts, samples.targets, samples.kinds, made | {"sha256": file_digest(file)})
    return store


def _facts(file: Path) -> dict[str, int]:
    facts = file.stat()
    return {"size": facts.st_size, "mtime_ns": facts.st_mtime_ns}
