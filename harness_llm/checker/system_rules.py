"""Rules on systems/<system>.json."""

from collections.abc import Iterable, Iterator
from typing import Any

from harness_llm.checker.findings import Rule, Violation, advised, rejected, rule
from harness_llm.checker.power_rules import has_power
from harness_llm.checker.submission_tree import System, load_json
from harness_llm.config.rules.rounds import SystemRules


def _rules(system: System) -> SystemRules:
    return system.submitter.tree.round.system


@rule("system-file", rejected("loader.py"), hint="every system with results requires a description")
def system_file(system: System) -> Iterable[Violation]:
    """The system description is missing or unreadable."""
    load_json(system.description_path)
    return ()


@rule("system-field", rejected("system_check.py, required_fields_check"))
def system_field(system: System) -> Iterator[Violation]:
    """A field of the system description is missing or empty."""
    rules, fields = _rules(system), system.description
    if fields is None:
        return
    networked = rules.network if system.submitter.division == "network" or fields.get("is_network") else ()
    for name in (*rules.filled, *rules.present, *networked):
        if name not in fields:
            yield Violation(system.description_path, name, "no such field")
    for name in rules.filled:
        if name in fields and not fields[name]:
            hint = 'write "0", a string' if fields[name] == 0 else 'write "N/A" where it does not apply'
            yield Violation(system.description_path, f"a value for {name}", repr(fields[name]), hint)


@rule("system-number", rejected("results.py:104-105"), hint="write plain digits")
def system_number(system: System) -> Iterator[Violation]:
    """A field of the system description is not an integer."""
    for name in _rules(system).integers:
        value = system.field(name)
        if value and not _is_integer(value):
            yield Violation(system.description_path, f"{name}: an integer", repr(value))


@rule("system-notes", rejected("results.py:111-114"), hint="write one text")
def system_notes(system: System) -> Iterator[Violation]:
    """The notes of the system description are not text, so that the official checker cannot join them."""
    notes = {name: system.field(name) for name in ("hw_notes", "sw_notes")}
    for name, value in notes.items() if notes["sw_notes"] else ():
        if value and not isinstance(value, str):
            yield Violation(system.description_path, f"{name}: a string", repr(value))


@rule("system-status", rejected("system_check.py, availability_check"))
def system_status(system: System) -> Iterator[Violation]:
    """The status of the system is not an allowed value."""
    status = system.field("status")
    if status and str(status).lower() not in _rules(system).statuses:
        yield Violation(system.description_path, " or ".join(_rules(system).statuses), str(status))


@rule("system-type", rejected("system_check.py, system_type_check"), hint="the value is case-sensitive")
def system_type(system: System) -> Iterator[Violation]:
    """The type of the system is not an allowed value."""
    kind = system.field("system_type")
    if kind and kind not in _rules(system).types:
        yield Violation(system.description_path, " or ".join(_rules(system).types), str(kind))


@rule("system-owner", rejected("system_check.py, submitter_check and division_check"))
def system_owner(system: System) -> Iterator[Violation]:
    """Submitter or division of the system description differ from its folder."""
    folder = {"submitter": system.submitter.name, "division": system.submitter.division}
    for name, expected in folder.items():
        value = system.field(name)
        if value and str(value).lower() != expected.lower():
            yield Violation(system.description_path, f"{name}: {expected}", str(value))


@rule("system-network", rejected("system_check.py, network_check"))
def system_network(system: System) -> Iterator[Violation]:
    """The field is_network does not match the division."""
    value = system.field("is_network")
    expected = {"closed": "false", "network": "true"}.get(system.submitter.division)
    if value is not None and not isinstance(value, str):
        yield Violation(system.description_path, 'is_network: "true" or "false", a string', repr(value))
    elif expected and system.description and (value or "false").lower() != expected:
        yield Violation(system.description_path, f'is_network: "{expected}"', repr(value))


@rule("system-cloud", advised("policies/submission_rules.adoc:458-459"))
def system_cloud(system: System) -> Iterator[Violation]:
    """The number of virtual CPUs of a cloud system is missing."""
    cloud = "cloud" in str(system.field("system_type_detail")).lower()
    for name in _rules(system).cloud if cloud else ():
        if not system.field(name):
            yield Violation(system.description_path, f"a value for {name}", repr(system.field(name)))


@rule("system-power", advised("system_check.py, nameplate_power_check"))
def system_power(system: System) -> Iterator[Violation]:
    """The nameplate power of a system with measured power is missing."""
    name, file = _rules(system).power_capacity, system.nameplate_path
    measured = any(has_power(result) for benchmark in system.benchmarks for result in benchmark.results)
    if file and measured and name not in (system.description or {}) and not file.is_file():
        yield Violation(system.description_path, f"{name}, or {file.name} beside it", "neither")


def _is_integer(value: Any) -> bool:
    try:
        int(value)
    except (TypeError, ValueError):
        return False
    return True


SYSTEM: tuple[Rule[System], ...] = (
    system_file,
    system_field,
    system_number,
    system_notes,
    system_status,
    system_type,
    system_owner,
    system_network,
    system_cloud,
    system_power,
)
