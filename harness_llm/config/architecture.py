"""documentation/system_architecture.md: nodes, network and data path of a system, and the bandwidth its results need.

The rules ask closed datacenter submitters for the network interfaces, the way from them to the accelerators, and proof
that it carries what the throughput needs (inference_rules.adoc:451-457). What no machine tells of itself stands in the
section `architecture` of the system file.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness_llm.config.system_file import ARCHITECTURE, load_section
from harness_llm.errors import ConfigError


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
