"""The system description, `systems/<SYSTEM_NAME>.json`: what the machine tells, and what its owner adds."""

import difflib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, StrictBool, ValidationError

from harness_llm.errors import ConfigError
from harness_llm.fileio import read_yaml
from harness_llm.hardware.ecc import Ecc, Fact, State
from harness_llm.paths import Workspace
from harness_llm.rules.rounds import Round

# What a system file holds beside the fields of the description.
ARCHITECTURE = "architecture"
ECC = "ecc"
_SECTIONS = (ARCHITECTURE, ECC)

# Whether LoadGen reaches the system over a network: the network division alone.
IS_NETWORK = "is_network"


class _Stated(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    memory: StrictBool | None = None
    accelerators: StrictBool | None = None


def system_file(workspace: Workspace, system: str) -> Path:
    """Where the owner of `system` writes what cannot be detected."""
    return workspace.systems / f"{system}.yaml"


def load_overrides(file: Path, rules: Round) -> dict[str, str]:
    """Read the fields of a system file; without one, nothing is added.

    Raises:
        ConfigError: it is no mapping of known fields to single values.
    """
    fields = {str(key): value for key, value in _document(file).items() if key not in _SECTIONS}
    return {key: _text(file, key, value, rules) for key, value in fields.items()}


def load_section(file: Path, name: str) -> dict[str, Any] | None:
    """The section `name` of a system file, unread; None without one.

    Raises:
        ConfigError: it is no mapping.
    """
    section = _document(file).get(name)
    if not isinstance(section, dict | None):
        raise ConfigError(f"{name} of a system is a section", where=f"{file}, {name}", found=str(section))
    return section


def _document(file: Path) -> dict[Any, Any]:
    document = (read_yaml(file) if file.is_file() else None) or {}
    if not isinstance(document, dict):
        raise ConfigError("a system file is wrong", where=str(file), expected="lines of the form field: value")
    return document


def _text(file: Path, key: str, value: object, rules: Round) -> str:
    fields = (*rules.system.filled, *rules.system.present, *rules.system.optional)
    if key not in fields:
        nearest = difflib.get_close_matches(key, (*fields, *_SECTIONS), n=1, cutoff=0)
        raise ConfigError(
            f"a system has no field {key}",
            where=str(file),
            found=key,
            hint=f"the nearest field is {nearest[0]}",
        )
    if isinstance(value, dict | list):
        raise ConfigError("a field of a system has one value", where=f"{file}, {key}", found=str(value))
    if isinstance(value, bool):  # is_network: true
        return str(value).lower()
    return "" if value is None else str(value)


def complete(ecc: Ecc, file: Path) -> Ecc:
    """What the machine does not tell, as the section `ecc` of the system file states it.

    Raises:
        ConfigError: the section has other keys than `memory` and `accelerators`, or other values than true and false.
    """
    try:
        stated = _Stated.model_validate(load_section(file, ECC) or {}).model_dump()
    except ValidationError as error:
        raise ConfigError(
            "the ecc of a system is wrong",
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
