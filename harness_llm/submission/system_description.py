"""The system description, `systems/<SYSTEM_NAME>.json`, from detected fields and the system file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness_llm.config.rules.rounds import Round
from harness_llm.config.system_file import IS_NETWORK
from harness_llm.errors import ConfigError
from harness_llm.hardware.accelerators import NOT_APPLICABLE

_OPEN_STATUS = "rdi"  # research, development or internal: claims no availability
_PLACEHOLDER = re.compile(r"\b(todo|tbd|tba|fixme|x{3,})\b|<[^>]*>|^\W*$", re.IGNORECASE)
_BLANK = ("n/a", "na", "unknown")

# Example values of fields that machines seldom report.
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


@dataclass(frozen=True)
class Description:
    """A system description as far as it is known.

    Attributes:
        fields: every field; those without a value are N/A.
        gaps: the fields without a value, with what they contain instead: nothing, or a placeholder.
        file: the system file, for messages.
    """

    fields: dict[str, str]
    gaps: dict[str, str]
    rules: Round
    file: Path

    def require(self) -> dict[str, str]:
        """Return the fields.

        Raises:
            ConfigError: a value is not allowed or, unless the division is open, missing.
        """
        if self.gaps and self.fields["division"] != "open":
            raise _gaps_error(self.gaps, self.file)
        _check_values(self.fields, self.rules, self.file)
        return self.fields


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
) -> Description:
    """Collect all fields that the round requires, and the given optional fields on cloud, network and power.

    All values are strings ("0", never 0).

    Args:
        category: value of `system_type`: datacenter, edge or both.
        detected: from `detect()`.
        overrides: from `load_overrides(file)`; they override detected values.
        file: the system file, for messages.

    Raises:
        ConfigError: the system file contradicts another argument.
    """
    given = {"division": division, "submitter": submitter, "system_type": category}
    _forbid_contradictions(given, overrides, file)
    fallback = {"system_name": system_name} | ({"status": _OPEN_STATUS} if division == "open" else {})
    known = fallback | dict(detected) | dict(overrides) | given
    fields = {name: known.get(name, "").strip() for name in _names(known, rules)}
    gaps = {name: value for name, value in fields.items() if _is_gap(name, fields, rules)}
    return Description(fields | dict.fromkeys(gaps, NOT_APPLICABLE), gaps, rules, file)


def _names(known: Mapping[str, str], rules: Round) -> tuple[str, ...]:
    """If is_network is given, the official checker requires all network fields, whatever its value."""
    system = rules.system
    wanted = (*system.filled, *system.present, *(system.network if IS_NETWORK in known else ()))
    return tuple(dict.fromkeys((*wanted, *(name for name in system.optional if name in known))))


def _forbid_contradictions(given: Mapping[str, str], overrides: Mapping[str, str], file: Path) -> None:
    for name, value in given.items():
        if overrides.get(name, value).lower() != value.lower():
            raise ConfigError(
                f"contradiction between the system file and the option for {name}",
                where=f"{file}, {name}",
                expected=value,
                found=overrides[name],
                hint=f"remove the line {name} from {file}",
            )


def _is_gap(name: str, fields: Mapping[str, str], rules: Round) -> bool:
    """Whether a field is empty, a placeholder, or N/A where a value is required."""
    value = fields[name]
    if _PLACEHOLDER.search(value):
        return bool(value) or name in rules.system.filled or fields["division"] == "open"
    return value.lower() in _BLANK and name in rules.system.filled and not _may_lack(name, fields)


def _may_lack(name: str, fields: Mapping[str, str]) -> bool:
    """Accelerator fields may be N/A without accelerators, and the interconnect with a single accelerator."""
    lacking = {"0": name.startswith("accelerator_"), "1": name == "accelerator_interconnect"}
    return lacking.get(fields["accelerators_per_node"], False)


def _gaps_error(gaps: Mapping[str, str], file: Path) -> ConfigError:
    lines = [f"{name}: {text or '(empty)'}" for name, text in gaps.items()]
    return ConfigError(
        f"missing fields in the description of {file.stem}, which closed requires",
        where=str(file),
        expected="the actual hardware and software, in every field",
        found="\n         ".join(lines),
        hint=f"write these fields into {file}, one per line, for example\n{_example(list(gaps))}",
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
                f"invalid value of {name}: {fields[name]}",
                where=f"{file}, {name}",
                expected=", ".join(values),
                found=fields[name],
            )
    for name in rules.system.integers:
        if not fields[name].isdecimal():
            raise ConfigError(
                f"{name} is not a number",
                where=f"{file}, {name}",
                expected="digits",
                found=fields[name],
                hint=f"write {name} into {file}; it cannot be detected on nodes that differ",
            )
