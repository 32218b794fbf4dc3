"""Check that results ran on one system and software: scenarios of one result (inference_rules.adoc:60-63), and all
results with one system description.
"""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness_llm.config.commands import command, name_of
from harness_llm.errors import GateFailed
from harness_llm.runs.facts import differences

# Keys of a fingerprint that identify system and software; engine arguments may differ between scenarios.
_FACTS = (
    *("engine", "packages", "wheel", "loadgen", "image"),
    *("hardware", "operating_system", "software"),
)
# Fields of a system description that are compared even if only the system file states them.
_DESCRIBED = ("framework", "operating_system", "other_software_stack", "system_type")
_OF_A_NODE = ("hardware", "operating_system", "software", "packages")


def require_one_system(fingerprints: Mapping[str, Mapping[str, Any]], hint: str = "") -> None:
    """Check that the scenarios ran on the same system with the same versions.

    Args:
        fingerprints: of the runs, by scenario.
        hint: for the error message; empty: repeat the runs.

    Raises:
        GateFailed: a scenario differs from the first one; lists each difference.
    """
    facts = {scenario: _system_facts(fingerprint) for scenario, fingerprint in fingerprints.items()}
    first = next(iter(facts), "")
    found = [
        f"{scenario}: {line} ({first})" for scenario in facts for line in differences(facts[scenario], facts[first])
    ]
    if found:
        raise GateFailed(
            "scenarios of one result ran on different systems or versions",
            expected="one system and one set of versions (inference_rules.adoc:60-63)",
            found="\n         ".join(found),
            hint=hint or f"{command('submit')} repeats the runs that do not match the installed versions",
        )


def _system_facts(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    nodes = [{name: node.get(name) for name in _OF_A_NODE} for node in fingerprint.get("nodes", [])]
    servers = [server["version"] for server in fingerprint.get("servers", [])]
    own = {name: fingerprint[name] for name in _FACTS if name in fingerprint}
    return own | {"nodes": sorted(nodes, key=str), "servers": sorted(servers, key=str)}


def require_same_description(
    file: Path, description: Mapping[str, str], measured: Iterable[str], others: Sequence[Path]
) -> None:
    """Check that a new system description is also true for results of other benchmarks.

    The submitter may correct fields that only the system file states.

    Args:
        file: the present description, which the new one replaces.
        measured: fields that were detected.
        others: folders of the other benchmarks' results.

    Raises:
        GateFailed: software, detected hardware or type of the system differ.
    """
    if not others or not file.is_file():
        return
    before = json.loads(file.read_text())
    fields = [name for name in description if name in {*_DESCRIBED, *measured}]
    changed = [name for name in fields if before.get(name) != description[name]]
    if changed:
        raise GateFailed(
            f"the system differs from that of the packaged results of {', '.join(folder.name for folder in others)}",
            where=str(file),
            expected="\n            ".join(f"{name}: {before.get(name, 'absent')}" for name in changed),
            found="\n         ".join(f"{name}: {description[name]}" for name in changed),
            hint=_apart(changed, others),
        )


def _apart(changed: Sequence[str], others: Sequence[Path]) -> str:
    hint = f"run this benchmark under another {name_of('system_name')}"
    if "system_type" in changed:
        return hint
    return f"{hint}, or package all benchmarks again on the present system, after: rm -r {shlex.join(map(str, others))}"
