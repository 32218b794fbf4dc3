"""Files: YAML and text that users write, and folders that are replaced as a whole."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from harness_llm.errors import ConfigError

READABLE = 0o644


def read_yaml(file: Path) -> Any:
    """What `file` holds; raises as `parse_yaml`."""
    return parse_yaml(read_text(file), str(file))


def read_text(file: Path) -> str:
    """The text that people wrote into `file`.

    Raises:
        ConfigError: it is no UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError("a file is no UTF-8", where=str(file), found=str(error)) from error


def parse_yaml(text: str, where: str) -> Any:
    """What `text` says.

    Raises:
        ConfigError: it is no YAML; `where` is named.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError("what stands here is no YAML", where=where, found=" ".join(str(error).split())) from error


@contextmanager
def replacing(output: Path) -> Iterator[Path]:
    """A fresh folder beside `output` that takes its place when the block ends well."""
    temporary = output.with_name(f"{output.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.iterdir():
            file.chmod(READABLE)  # safetensors writes for the owner alone; containers run as someone else
        shutil.rmtree(output, ignore_errors=True)
        temporary.rename(output)
    except BaseException:  # Ctrl-C too: nothing half-written stays
        shutil.rmtree(temporary, ignore_errors=True)
        raise
