"""YAML that people write."""

from pathlib import Path
from typing import Any

import yaml

from harness_llm.errors import ConfigError


def read_yaml(file: Path) -> Any:
    """What `file` holds."""
    return parse_yaml(file.read_text(), str(file))


def parse_yaml(text: str, where: str) -> Any:
    """What `text` says.

    Raises:
        ConfigError: it is no YAML; `where` is named.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError("what stands here is no YAML", where=where, found=" ".join(str(error).split())) from error
