"""documentation/system_architecture.md: nodes, network and data path of a system, and its bandwidth check.

Closed datacenter submitters must document the network interfaces, the path from them to the accelerators, and its
bandwidth (inference_rules.adoc:451-457).
"""

import re
from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from harness_llm.config.architecture import Architecture
from harness_llm.config.system_file import ARCHITECTURE
from harness_llm.hardware.ecc import Ecc
from harness_llm.submission.bandwidth import TOKEN_BYTES, Bandwidth, MeasuredResult, Segment, compare
from harness_llm.submission.templates import render

_TITLE = "# System architecture of "


def missing_facts(description: Mapping[str, str], architecture: Architecture | None) -> list[str]:
    """Missing keys of the system file that the bandwidth check requires, each with its expected content."""
    stated = architecture or Architecture()
    keys = _missing_nodes(description, stated)
    keys += _missing_in_list("nics", stated.nics, ("model", "count", "gbit_s"))
    keys += _missing_in_list("data_path", stated.data_path, ("from", "to", "kind", "gbit_s", "evidence"))
    return [f"{ARCHITECTURE}.{key}" for key in keys]


def check_bandwidths(architecture: Architecture | None, results: Sequence[MeasuredResult]) -> list[Bandwidth]:
    """Check the bandwidth of each result; empty if the system file states no bandwidth."""
    segments = _segments(architecture) if architecture else []
    return [compare(result, segments) for result in results] if segments else []


def render_architecture(
    system: str,
    description: Mapping[str, str],
    architecture: Architecture | None,
    ecc: Ecc,
    results: Sequence[MeasuredResult],
) -> str:
    """Render the part of the document on one system.

    Args:
        system: name of the system's folder, which differs from `system_name` of the description.
        description: content of `systems/<system>.json`.
        results: all results of the system in the tree.
    """
    return render(
        "system_architecture.md.j2",
        title=_TITLE,
        system=system,
        d=description,
        ecc=ecc,
        architecture=architecture or Architecture(),
        missing=missing_facts(description, architecture),
        results=results,
        bandwidths=check_bandwidths(architecture, results),
        token_bytes=TOKEN_BYTES,
    )


def merged(document: str, part: str) -> str:
    """Add `part`, from `render_architecture`, to `document`; it replaces an earlier part on the same system."""
    parts = re.split(rf"^(?={_TITLE})", document, flags=re.MULTILINE)
    others = [other for other in parts if other.strip() and other.splitlines()[0] != part.splitlines()[0]]
    return "\n".join(text.rstrip("\n") + "\n" for text in sorted([*others, part]))


def _missing_nodes(description: Mapping[str, str], architecture: Architecture) -> list[str]:
    """Roles of nodes are required for several nodes only."""
    total, stated = description["number_of_nodes"], sum(node.count for node in architecture.nodes)
    if (total == "1" and not architecture.nodes) or total == str(stated):
        return []
    return [f"nodes: name, count and role of {total} nodes, of which {stated} are stated"]


def _missing_in_list(name: str, items: Sequence[BaseModel], keys: Sequence[str]) -> list[str]:
    if not items:
        return [f"{name}: a list with {', '.join(keys)} in each entry"]
    entries = [item.model_dump(by_alias=True) for item in items]
    return [f"{name}[{index}].{key}" for index, entry in enumerate(entries) for key in keys if not entry[key]]


def _segments(architecture: Architecture) -> list[Segment]:
    """Segments of the path: all network interfaces together, then each link of the data path."""
    rates = [nic.count * nic.gbit_s for nic in architecture.nics if nic.count and nic.gbit_s]
    nics = [Segment("network interfaces", sum(rates))] if rates else []
    return nics + [
        Segment(f"{link.start} to {link.to}", link.count * link.gbit_s)
        for link in architecture.data_path
        if link.gbit_s
    ]
