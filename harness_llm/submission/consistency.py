"""Check that all scenarios of one result ran on the same system and software (inference_rules.adoc:60-63)."""

from collections.abc import Mapping
from typing import Any

from harness_llm.errors import GateFailed
from harness_llm.runs.selection import differences

# Keys of a fingerprint that identify system and software; engine arguments may differ between scenarios.
_FACTS = (
    *("engine", "packages", "wheel", "loadgen", "image"),
    *("hardware", "operating_system", "software"),
)
_OF_A_NODE = ("hardware", "operating_system", "software", "packages")


_REPEAT = "harness-llm submit repeats the runs that do not match the installed versions"


def require_one_system(fingerprints: Mapping[str, Mapping[str, Any]], hint: str = _REPEAT) -> None:
    """Check that the scenarios ran on the same system with the same versions.

    Args:
        fingerprints: of the runs, by scenario.
        hint: for the error message.

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
            hint=hint,
        )


def _system_facts(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    nodes = [{name: node.get(name) for name in _OF_A_NODE} for node in fingerprint.get("nodes", [])]
    servers = [server["version"] for server in fingerprint.get("servers", [])]
    own = {name: fingerprint[name] for name in _FACTS if name in fingerprint}
    return own | {"nodes": sorted(nodes, key=str), "servers": sorted(servers, key=str)}
