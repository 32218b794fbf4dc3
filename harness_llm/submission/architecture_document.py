"""documentation/system_architecture.md: nodes, network and data path of a system, and the bandwidth its results need.

The rules ask closed datacenter submitters for the network interfaces, the way from them to the accelerators, and proof
that it carries what the throughput needs (inference_rules.adoc:451-457).
"""

import re
from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from harness_llm.config.architecture import Architecture, Link
from harness_llm.config.system_file import ARCHITECTURE
from harness_llm.hardware.ecc import Ecc
from harness_llm.submission.bandwidth import TOKEN_BYTES, Bandwidth, MeasuredResult, Segment, compare
from harness_llm.submission.templates import render

_TITLE = "# System architecture of "


def missing_facts(description: Mapping[str, str], architecture: Architecture | None) -> list[str]:
    """The keys of the system file without which bandwidths cannot be judged, each with what belongs there."""
    known = architecture or Architecture()
    keys = _missing_nodes(description, known)
    keys += _missing_of("nics", known.nics, ("model", "count", "gbit_s"))
    keys += _missing_of("data_path", known.data_path, ("from", "to", "kind", "gbit_s", "evidence"))
    return [f"{ARCHITECTURE}.{key}" for key in keys]


def compared(architecture: Architecture | None, results: Sequence[MeasuredResult]) -> list[Bandwidth]:
    """Each of `results` against what is known of the way; none while nothing is known."""
    segments = _segments(architecture) if architecture else []
    return [compare(result, segments) for result in results] if segments else []


def render_architecture(
    description: Mapping[str, str],
    architecture: Architecture | None,
    ecc: Ecc,
    results: Sequence[MeasuredResult],
) -> str:
    """The document on one system.

    Args:
        description: the content of `systems/<system>.json`.
        results: of this system, all that stand in the tree.
    """
    return render(
        "system_architecture.md.j2",
        title=_TITLE,
        d=description,
        ecc=ecc,
        architecture=architecture or Architecture(),
        missing=missing_facts(description, architecture),
        results=results,
        bandwidths=compared(architecture, results),
        token_bytes=TOKEN_BYTES,
    )


def merged(document: str, part: str) -> str:
    """`document` with the part on one system, from `render_architecture`, put in the place of its last version."""
    parts = re.split(rf"^(?={_TITLE})", document, flags=re.MULTILINE)
    others = [other for other in parts if other.strip() and other.splitlines()[0] != part.splitlines()[0]]
    return "\n".join(text.rstrip("\n") + "\n" for text in sorted([*others, part]))


def _way(link: Link) -> str:
    return f"{link.start} to {link.to}"


def _missing_nodes(description: Mapping[str, str], architecture: Architecture) -> list[str]:
    """Several nodes have roles; one has all of them."""
    total, stated = description["number_of_nodes"], sum(node.count for node in architecture.nodes)
    if (total == "1" and not architecture.nodes) or total == str(stated):
        return []
    return [f"nodes: name, count and role of {total} nodes, of which {stated} are stated"]


def _missing_of(name: str, items: Sequence[BaseModel], keys: Sequence[str]) -> list[str]:
    if not items:
        return [f"{name}: a list with {', '.join(keys)} in each entry"]
    entries = [item.model_dump(by_alias=True) for item in items]
    return [f"{name}[{place}].{key}" for place, entry in enumerate(entries) for key in keys if not entry[key]]


def _segments(architecture: Architecture) -> list[Segment]:
    """The way of every query and answer: all network interfaces together, then each stage of the data path."""
    rates = [nic.count * nic.gbit_s for nic in architecture.nics if nic.count and nic.gbit_s]
    nics = [Segment("network interfaces", sum(rates))] if rates else []
    return nics + [Segment(_way(link), link.count * link.gbit_s) for link in architecture.data_path if link.gbit_s]
