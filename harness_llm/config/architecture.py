"""The section `architecture` of a system file: nodes, network interfaces and data path.

Closed datacenter submissions document the network interfaces, the path from them to the accelerators, and that its
bandwidth is sufficient (inference_rules.adoc:451-457). These facts cannot be detected.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness_llm.config.system_file import ARCHITECTURE, load_section
from harness_llm.errors import ConfigError


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True)


class Node(_Facts):
    """Nodes of one kind; `role` is their task.

    Attributes:
        hosts: host names or addresses, for URLs of running servers.
    """

    name: str
    count: int = Field(ge=1)
    role: str = ""
    hosts: tuple[str, ...] = ()


class Nic(_Facts):
    """Network interfaces of one model in the node of LoadGen; `gbit_s` of one interface."""

    model: str = ""
    count: int | None = Field(default=None, ge=1)
    gbit_s: float | None = Field(default=None, gt=0)


class Link(_Facts):
    """Parallel links of the data path.

    Attributes:
        start: start of the link, `from` in the file; `to` is its end.
        kind: for example PCIe Gen5 x16.
        gbit_s: of one link, in each direction.
        evidence: specification or measurement of the bandwidth.
    """

    start: str = Field(alias="from")
    to: str
    kind: str
    count: int = Field(default=1, ge=1)
    gbit_s: float | None = Field(default=None, gt=0)
    evidence: str = ""


class Equipment(_Facts):
    """Networking equipment outside the nodes, such as switches."""

    model: str
    count: int = Field(ge=1)


class Architecture(_Facts):
    """The architecture of a system; facts may be missing.

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
        ConfigError: it has an unknown key or an invalid value.
    """
    section = load_section(file, ARCHITECTURE)
    if section is None:
        return None
    try:
        return Architecture.model_validate(section)
    except ValidationError as error:
        faults = [f"{'.'.join((ARCHITECTURE, *map(str, e['loc'])))}: {e['msg']}" for e in error.errors()]
        raise ConfigError(
            "invalid architecture of a system",
            where=str(file),
            found="\n         ".join(faults),
            hint="docs/closed-datacenter.md has an example",
        ) from error
