"""Merge the descriptions of several nodes into one system."""

from collections import Counter
from collections.abc import Mapping, Sequence

from harness_llm.hardware.ecc import Ecc, together


def merged(machines: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the common fields of `machines`, from `detect`.

    Different texts are listed with the number of nodes each. Different numbers, and fields that a node does not
    report, are omitted: the system file must contain them.
    """
    shared = [name for name in machines[0] if all(name in machine for machine in machines)]
    fields = {name: _of_all([machine[name] for machine in machines]) for name in shared}
    fields["number_of_nodes"] = str(sum(int(machine["number_of_nodes"]) for machine in machines))
    return {name: value for name, value in fields.items() if value}


def _of_all(values: Sequence[str]) -> str:
    counts = Counter(values)
    if len(counts) == 1:
        return values[0]
    if any(value.isdecimal() for value in counts):
        return ""
    return "; ".join(f"{count} nodes: {value}" if count > 1 else f"1 node: {value}" for value, count in counts.items())


def merged_ecc(found: Sequence[Ecc]) -> Ecc:
    """Return the worst state of all nodes."""
    return Ecc(together([ecc.memory for ecc in found]), together([ecc.accelerators for ecc in found]))
