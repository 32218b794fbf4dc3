"""Reading YAML and text files of users, and replacing folders atomically."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from harness_llm.errors import ConfigError

READABLE = 0o644


def read_yaml(file: Path) -> Any:
    """The content of the YAML file `file`; raises as `parse_yaml`."""
    return parse_yaml(read_text(file), str(file))


def read_text(file: Path) -> str:
    """The text in `file`.

    Raises:
        ConfigError: the file is not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError("a file is not UTF-8", where=str(file), found=str(error)) from error


def parse_yaml(text: str, where: str) -> Any:
    """The content of `text`.

    Args:
        where: the place of the text, for the error message.

    Raises:
        ConfigError: invalid YAML.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError("invalid YAML", where=where, found=" ".join(str(error).split())) from error


@contextmanager
def replacing(output: Path) -> Iterator[Path]:
    """An empty folder beside `output` that replaces it if the block ends without an exception."""
    temporary = output.with_name(f"{output.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.iterdir():
            file.chmod(READABLE)  # safetensors gives only the owner access; containers run as another user
        shutil.rmtree(output, ignore_errors=True)
        temporary.rename(output)
    except BaseException:  # Ctrl-C too: remove the incomplete folder
        shutil.rmtree(temporary, ignore_errors=True)
        raise
