"""Describe the accelerators of this machine, from the vendors' tools or the PCI bus."""

import csv
import importlib
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness_llm.hardware.pci import functions_on_bus
from harness_llm.hardware.sysfs import read

NOT_APPLICABLE = "N/A"

# Fields of a machine without accelerators.
WITHOUT = {
    "accelerators_per_node": "0",
    "accelerator_model_name": NOT_APPLICABLE,
    "accelerator_memory_capacity": NOT_APPLICABLE,
    "accelerator_host_interconnect": NOT_APPLICABLE,
    "accelerator_memory_configuration": NOT_APPLICABLE,
    "accelerator_interconnect": NOT_APPLICABLE,
    "accelerator_frequency": NOT_APPLICABLE,
    "accelerator_interconnect_topology": NOT_APPLICABLE,
    "accelerator_on-chip_memories": NOT_APPLICABLE,
}

_GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}  # GT/s per lane
_QUERY = ("pci.bus_id", "name", "memory.total", "clocks.max.sm")
_TIMEOUT_S = 60  # the driver may have to load first; tools can hang with a broken driver


@dataclass(frozen=True)
class Accelerator:
    """One accelerator; unknown fields are empty.

    Attributes:
        bus: PCI address, `0000:c1:00.0`.
    """

    bus: str
    model: str = ""
    memory_gib: int = 0
    memory_type: str = ""
    frequency: str = ""


def detect_accelerators(root: Path) -> dict[str, str]:
    """Return the accelerator_* fields that can be detected; N/A without accelerators."""
    devices = (_nvidia() + _amd(root)) or _on_bus(root)
    if not devices:
        return dict(WITHOUT)
    return _counted(len(devices)) | {
        "accelerator_model_name": _distinct(d.model for d in devices),
        "accelerator_memory_capacity": _distinct(f"{d.memory_gib} GiB" if d.memory_gib else "" for d in devices),
        "accelerator_memory_configuration": _distinct(d.memory_type for d in devices),
        "accelerator_frequency": _distinct(d.frequency for d in devices),
        "accelerator_host_interconnect": _distinct(_host_link(root, d.bus) for d in devices),
    }


def _counted(count: int) -> dict[str, str]:
    """Return the fields that depend on the number of accelerators; one has no interconnect."""
    alone = {"accelerator_interconnect": NOT_APPLICABLE} if count == 1 else {}
    return {"accelerators_per_node": str(count)} | alone


def restrict_accelerators(node: Mapping[str, str], used: int) -> dict[str, str]:
    """Return the fields of a system that uses `used` accelerators of `node`; 0 for an unknown number.

    Args:
        node: from `detect`, or merged from several nodes, which are not restricted.
    """
    restricted = node.get("number_of_nodes") == "1" and 0 < used < int(node.get("accelerators_per_node", 0))
    return dict(node) | (_counted(used) if restricted else {})


def parse_nvidia(rows: Iterable[Sequence[str]]) -> list[Accelerator]:
    """Parse nvidia-smi's rows for _QUERY."""
    return [
        Accelerator(
            bus=kernel_address(bus),
            model=model,
            memory_gib=round(int(mib) / 1024) if mib.isdigit() else 0,
            frequency=f"{mhz} MHz (maximum)" if mhz.isdigit() else "",
        )
        for bus, model, mib, mhz in rows
    ]


def kernel_address(bus_id: str) -> str:
    """Return the kernel's PCI address for nvidia-smi's `pci.bus_id`, whose domain has eight digits instead of four."""
    return bus_id[-12:].lower()


@dataclass(frozen=True)
class NvidiaAnswer:
    """Rows of an nvidia-smi query; without rows, `error` is the first line of its output, or empty without the tool."""

    rows: list[list[str]]
    error: str = ""


def ask_nvidia(fields: Sequence[str], table: str = "gpu") -> list[list[str]]:
    """Return the rows of `query_nvidia`."""
    return query_nvidia(fields, table).rows


def query_nvidia(fields: Sequence[str], table: str = "gpu") -> NvidiaAnswer:
    """Ask nvidia-smi for `fields`, one row per accelerator.

    Args:
        table: `gpu`, or `compute-apps` for a row per process (nvidia-smi --help-query-compute-apps).
    """
    if not shutil.which("nvidia-smi"):
        return NvidiaAnswer([])
    command = ["nvidia-smi", f"--query-{table}={','.join(fields)}", "--format=csv,noheader,nounits"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()  # subprocess.run would wait for its end, which never comes if the driver blocks it
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
        return NvidiaAnswer([], f"no output for {_TIMEOUT_S} s")
    rows = [] if process.returncode else [row for row in parse_table(out) if len(row) == len(fields)]
    lines = f"{out}\n{err}".strip().splitlines()
    return NvidiaAnswer(rows, "" if rows else next(iter(lines), f"exit code {process.returncode}, no output"))


def parse_table(table: str) -> list[list[str]]:
    """Parse nvidia-smi's output with `--format=csv,noheader,nounits`."""
    return [row for row in csv.reader(table.splitlines(), skipinitialspace=True) if row]


def _nvidia() -> list[Accelerator]:
    return parse_nvidia(ask_nvidia(_QUERY))


def _amd(root: Path) -> list[Accelerator]:
    try:
        smi: Any = importlib.import_module("amdsmi")
    except (ImportError, OSError):  # OSError: the package is installed, its library is not
        return []
    try:
        smi.amdsmi_init()
    except smi.AmdSmiException:  # no driver
        return []
    try:
        return [_amd_device(smi, handle, root) for handle in smi.amdsmi_get_processor_handles()]
    finally:
        smi.amdsmi_shut_down()


def _amd_device(smi: Any, handle: Any, root: Path) -> Accelerator:
    bus = smi.amdsmi_get_gpu_device_bdf(handle).lower()
    memory = _amd_field(smi, smi.amdsmi_get_gpu_vram_info, handle, "vram_type")
    return Accelerator(
        bus=bus,
        model=_amd_field(smi, smi.amdsmi_get_gpu_asic_info, handle, "market_name"),
        memory_gib=_amd_memory(root, bus),
        memory_type=smi.AmdSmiVramType(memory).name if isinstance(memory, int) else memory,
    )


def _amd_field(smi: Any, get: Callable[[Any], Mapping[str, Any]], handle: Any, name: str) -> Any:
    """Return a field; empty if the GPU does not report it, as virtual functions do."""
    try:
        value = get(handle)[name]
    except smi.AmdSmiException:
        return ""
    return "" if value == NOT_APPLICABLE else value


def _on_bus(root: Path) -> list[Accelerator]:
    """Return the accelerators on the PCI bus, without their names."""
    return [Accelerator(bus=f.name, memory_gib=_amd_memory(root, f.name)) for f in functions_on_bus(root)]


def _amd_memory(root: Path, bus: str) -> int:
    """Return GiB of memory from the amdgpu driver; 0 for other drivers."""
    return round(int(read(root / "sys/bus/pci/devices" / bus / "mem_info_vram_total") or 0) / 2**30)


def _host_link(root: Path, bus: str) -> str:
    function = root / "sys/bus/pci/devices" / bus
    speed, width = read(function / "max_link_speed").split(" ")[0], read(function / "max_link_width")
    return f"PCIe Gen{_GENERATIONS[speed]} x{width}" if speed in _GENERATIONS and width else ""


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))
