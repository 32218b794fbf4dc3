"""documentation/system_architecture.md: nodes, network and data path of a system, and the bandwidth its results need.

The rules ask closed datacenter submitters for the network interfaces, the way from them to the accelerators, and proof
that it carries what the throughput needs (inference_rules.adoc:451-457). What no machine tells of itself stands in the
section `architecture` of the system file.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness_llm.errors import ConfigError
from harness_llm.package.bandwidth import TOKEN_BYTES, Bandwidth, MeasuredResult, Segment, compare
from harness_llm.package.ecc import Ecc
from harness_llm.package.rendering import render
from harness_llm.package.system import ARCHITECTURE, load_section

_TITLE = "# System architecture of "


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True)


class Node(_Facts):
    """Nodes of one kind; `role` is what runs on them.

    Attributes:
        hosts: their names or addresses, which URLs of running servers may have.
    """

    name: str
    count: int = Field(ge=1)
    role: str = ""
    hosts: tuple[str, ...] = ()


class Nic(_Facts):
    """Network interfaces of one model, of the node whose memory holds LoadGen's queries; `gbit_s` of one of them."""

    model: str = ""
    count: int | None = Field(default=None, ge=1)
    gbit_s: float | None = Field(default=None, gt=0)


class Link(_Facts):
    """Parallel links of the data path.

    Attributes:
        start: what they begin at; `from` in the file, `to` is where they end.
        kind: what they are, for example PCIe Gen5 x16.
        gbit_s: of one of them, in each direction.
        evidence: the specification or measurement that says so.
    """

    start: str = Field(alias="from")
    to: str
    kind: str
    count: int = Field(default=1, ge=1)
    gbit_s: float | None = Field(default=None, gt=0)
    evidence: str = ""


class Equipment(_Facts):
    """Networking equipment outside the nodes, switches say."""

    model: str
    count: int = Field(ge=1)


class Architecture(_Facts):
    """What a system file says of a system's architecture; what it leaves out is `missing_facts`.

    Attributes:
        data_path: from the network to the accelerators, in order.
    """

    nodes: tuple[Node, ...] = ()
    nics: tuple[Nic, ...] = ()
    data_path: tuple[Link, ...] = ()
    equipment: tuple[Equipment, ...] = ()

    @property
    def hosts(self) -> list[str]:
        """Of all nodes."""
        return [host for node in self.nodes for host in node.hosts]

    @property
    def segments(self) -> list[Segment]:
        """The way of every query and answer: all network interfaces together, then each stage of the data path."""
        rates = [nic.count * nic.gbit_s for nic in self.nics if nic.count and nic.gbit_s]
        nics = [Segment("network interfaces", sum(rates))] if rates else []
        return nics + [Segment(_way(link), link.count * link.gbit_s) for link in self.data_path if link.gbit_s]


def load_architecture(file: Path) -> Architecture | None:
    """The section `architecture` of a system file; None without one.

    Raises:
        ConfigError: it has unknown keys, or values that cannot be.
    """
    section = load_section(file, ARCHITECTURE)
    if section is None:
        return None
    try:
        return Architecture.model_validate(section)
    except ValidationError as error:
        faults = [f"{'.'.join((ARCHITECTURE, *map(str, e['loc'])))}: {e['msg']}" for e in error.errors()]
        raise ConfigError(
            "the architecture of a system is wrong",
            where=str(file),
            found="\n         ".join(faults),
            hint="docs/closed-datacenter.md has an example",
        ) from error


def missing_facts(description: Mapping[str, str], architecture: Architecture | None) -> list[str]:
    """The keys of the system file without which bandwidths cannot be judged, each with what belongs there."""
    known = architecture or Architecture()
    keys = _missing_nodes(description, known)
    keys += _missing_of("nics", known.nics, ("model", "count", "gbit_s"))
    keys += _missing_of("data_path", known.data_path, ("from", "to", "kind", "gbit_s", "evidence"))
    return [f"{ARCHITECTURE}.{key}" for key in keys]


def compared(architecture: Architecture | None, results: Sequence[MeasuredResult]) -> list[Bandwidth]:
    """Each of `results` against what is known of the way; none while nothing is known."""
    segments = architecture.segments if architecture else []
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
