"""The system description, `systems/<SYSTEM_NAME>.json`: detected fields and those of the system file."""

import re
from collections.abc import Mapping
from pathlib import Path

from harness_llm.config.system_file import IS_NETWORK
from harness_llm.errors import ConfigError
from harness_llm.hardware.accelerators import NOT_APPLICABLE
from harness_llm.rules.rounds import Round

# An availability that claims nothing: research, development or internal.
_OPEN_STATUS = "rdi"
_PLACEHOLDER = re.compile(r"\b(todo|tbd|tba|fixme|x{3,})\b|<[^>]*>|^\W*$", re.IGNORECASE)
_BLANK = ("n/a", "na", "unknown")

# How a value looks, for fields that machines seldom tell.
_EXAMPLES = {
    "status": "available",
    "cooling": "Air-cooled",
    "host_memory_configuration": "24x 96 GB DDR5-4800",
    "host_networking": "8x Ethernet 400 Gb/s",
    "host_network_card_count": "8",
    "host_networking_topology": "Single-rail leaf-spine Ethernet fabric",
    "accelerator_memory_configuration": "HBM3",
    "accelerator_interconnect": "XGMI",
}


def describe(
    system_name: str,
    *,
    submitter: str,
    division: str,
    category: str,
    rules: Round,
    detected: Mapping[str, str],
    overrides: Mapping[str, str],
    file: Path,
) -> dict[str, str]:
    """All fields that the round asks for, and those of clouds, networks and power that are given.

    Every value is a text ("0", never 0).

    Args:
        category: datacenter, edge or both, as `system_type` says it.
        detected: from `detect()`.
        overrides: from `load_overrides(file)`; they win.
        file: named in messages.

    Raises:
        ConfigError: closed has a gap or a placeholder, or a value is none of those allowed. Open says N/A.
    """
    given = {"division": division, "submitter": submitter, "system_type": category}
    _forbid_contradictions(given, overrides, file)
    fallback = {"system_name": system_name} | ({"status": _OPEN_STATUS} if division == "open" else {})
    known = fallback | dict(detected) | dict(overrides) | given
    fields = {name: known.get(name, "").strip() for name in _names(known, rules)}
    gaps = [name for name in fields if _is_gap(name, fields, rules)]
    if division != "open":
        _refuse_gaps(system_name, gaps, fields, file)
    described = fields | dict.fromkeys(gaps, NOT_APPLICABLE)
    _check_values(described, rules, file)
    return described


def _names(known: Mapping[str, str], rules: Round) -> tuple[str, ...]:
    """Once is_network is given, the official checker asks for all fields of a network, whatever its value."""
    system = rules.system
    wanted = (*system.filled, *system.present, *(system.network if IS_NETWORK in known else ()))
    return tuple(dict.fromkeys((*wanted, *(name for name in system.optional if name in known))))


def _forbid_contradictions(given: Mapping[str, str], overrides: Mapping[str, str], file: Path) -> None:
    for name, value in given.items():
        if overrides.get(name, value).lower() != value.lower():
            raise ConfigError(
                f"the system file contradicts the {name} asked for",
                where=f"{file}, {name}",
                expected=value,
                found=overrides[name],
                hint=f"remove the line {name} from {file}",
            )


def _is_gap(name: str, fields: Mapping[str, str], rules: Round) -> bool:
    """Nothing or a placeholder, or N/A where there must be a value; what may be empty may be N/A too."""
    value = fields[name]
    if _PLACEHOLDER.search(value):
        return bool(value) or name in rules.system.filled or fields["division"] == "open"
    return value.lower() in _BLANK and name in rules.system.filled and not _may_lack(name, fields)


def _may_lack(name: str, fields: Mapping[str, str]) -> bool:
    """No accelerator has no memory; a single one is connected to no other."""
    lacking = {"0": name.startswith("accelerator_"), "1": name == "accelerator_interconnect"}
    return lacking.get(fields["accelerators_per_node"], False)


def _refuse_gaps(system: str, gaps: list[str], fields: Mapping[str, str], file: Path) -> None:
    if not gaps:
        return
    lines = [f"{name}: {fields[name] or '(nothing)'}" for name in gaps]
    raise ConfigError(
        f"the description of {system} has gaps, which closed does not allow",
        where=str(file),
        expected="what the machine really has, in every field",
        found="\n         ".join(lines),
        hint=f"write these fields into {file}, one a line, for example\n{_example(gaps)}",
    )


def _example(gaps: list[str]) -> str:
    name = next((name for name in gaps if name in _EXAMPLES), gaps[0])
    return f'{name}: "{_EXAMPLES.get(name, "...")}"'


def _check_values(fields: Mapping[str, str], rules: Round, file: Path) -> None:
    networks = {"closed": ("false",), "network": ("true",)}.get(fields["division"], ("false", "true"))
    allowed = {"status": rules.system.statuses, "system_type": rules.system.types, IS_NETWORK: networks}
    for name, values in allowed.items():
        if name in fields and fields[name] not in values:
            raise ConfigError(
                f"a system cannot have the {name} {fields[name]}",
                where=f"{file}, {name}",
                expected=", ".join(values),
                found=fields[name],
            )
    for name in rules.system.integers:
        if not fields[name].isdecimal():
            raise ConfigError(
                f"{name} is no number",
                where=f"{file}, {name}",
                expected="digits",
                found=fields[name],
                hint=f"write {name} into {file}; of nodes that differ it cannot be detected",
            )
