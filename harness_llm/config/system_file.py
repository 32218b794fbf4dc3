"""The system file, `submission/systems/<SYSTEM_NAME>.yaml`: facts of a system that cannot be detected."""

import difflib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, StrictBool, ValidationError

from harness_llm.config.rules.rounds import Round
from harness_llm.errors import ConfigError
from harness_llm.fileio import read_yaml
from harness_llm.hardware.ecc import Ecc, Fact, State
from harness_llm.paths import Workspace

# Sections of a system file, beside the fields of the description.
ARCHITECTURE = "architecture"
ECC = "ecc"
_SECTIONS = (ARCHITECTURE, ECC)

# Whether LoadGen reaches the system over a network: only in the network division.
IS_NETWORK = "is_network"


class _Stated(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    memory: StrictBool | None = None
    accelerators: StrictBool | None = None


def system_file(workspace: Workspace, system: str) -> Path:
    """The system file of `system`, which may not exist."""
    return workspace.systems / f"{system}.yaml"


def load_overrides(file: Path, rules: Round) -> dict[str, str]:
    """Read the fields of a system file; empty without a file.

    Raises:
        ConfigError: it has an unknown field, or a field without a single value.
    """
    fields = {str(key): value for key, value in _document(file).items() if key not in _SECTIONS}
    return {key: _text(file, key, value, rules) for key, value in fields.items()}


def load_section(file: Path, name: str) -> dict[str, Any] | None:
    """The section `name` of a system file; None without one.

    Raises:
        ConfigError: it is not a mapping.
    """
    section = _document(file).get(name)
    if not isinstance(section, dict | None):
        raise ConfigError(f"{name} of a system must be a section", where=f"{file}, {name}", found=str(section))
    return section


def _document(file: Path) -> dict[Any, Any]:
    document = (read_yaml(file) if file.is_file() else None) or {}
    if not isinstance(document, dict):
        raise ConfigError("invalid system file", where=str(file), expected="lines of the form field: value")
    return document


def _text(file: Path, key: str, value: object, rules: Round) -> str:
    fields = (*rules.system.filled, *rules.system.present, *rules.system.optional)
    if key not in fields:
        nearest = difflib.get_close_matches(key, (*fields, *_SECTIONS), n=1, cutoff=0)
        raise ConfigError(
            f"unknown field {key} of a system",
            where=str(file),
            found=key,
            hint=f"the nearest field is {nearest[0]}",
        )
    if isinstance(value, dict | list):
        raise ConfigError("a field of a system must have one value", where=f"{file}, {key}", found=str(value))
    if isinstance(value, bool):  # is_network: true
        return str(value).lower()
    return "" if value is None else str(value)


def complete(ecc: Ecc, file: Path) -> Ecc:
    """`ecc` with the facts that cannot be detected, from the section `ecc` of the system file.

    Raises:
        ConfigError: the section has other keys than `memory` and `accelerators`, or other values than true and false.
    """
    try:
        stated = _Stated.model_validate(load_section(file, ECC) or {}).model_dump()
    except ValidationError as error:
        raise ConfigError(
            "invalid ecc of a system",
            where=f"{file}, {ECC}",
            expected="{memory: true, accelerators: true}",
            found=str(error),
        ) from error
    facts = {
        name: Fact(State.ON if stated[name] else State.OFF, f"stated in {file.name}, not read")
        if fact.state is State.UNKNOWN and stated[name] is not None
        else fact
        for name, fact in ecc.facts.items()
    }
    return Ecc(**facts)
