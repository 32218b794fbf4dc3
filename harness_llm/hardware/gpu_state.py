"""State of a node's GPUs for `doctor`: driver, memory, processes, partitions; from /proc, /sys and nvidia-smi."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from harness_llm.hardware.accelerators import ask_nvidia, query_nvidia
from harness_llm.hardware.pci import accelerators, functions_on_bus, pci_id
from harness_llm.hardware.sysfs import read

_MIB = 2**20
_PCI = "sys/bus/pci/devices"
_NVSWITCH = ("0x10de", "0x0680")  # vendor and PCI class (other bridge) of NVSwitches in HGX A100, H100 and H200
_FABRIC_MANAGER = "nv-fabricmanager"[:15]  # the kernel keeps 15 characters (proc_pid_comm(5))
_QUERY = ("index", "uuid", "pci.device_id", "name", "driver_version", "memory.total", "memory.free", "mig.mode.current")
_DEVICE_ID = re.compile(r"0x(\w{4})(\w{4})")  # of nvidia-smi: device, vendor
_APPS = ("pid", "process_name", "used_memory")
_FABRIC = ("fabric.state", "fabric.status")  # since driver 525; a separate query, because unknown fields fail a query
_NOT_READABLE = ("[N/A]", "[Not Supported]", "N/A", "")
_KFD = "sys/class/kfd/kfd/proc"


@dataclass(frozen=True)
class Device:
    """One GPU; unknown fields are empty or None.

    Attributes:
        number: index with CUDA_DEVICE_ORDER=PCI_BUS_ID and in ROCm.
        pci: PCI id, `vendor:device`.
        fabric: state of its NVLink fabric, `Completed Success`.
    """

    number: int
    uuid: str = ""
    pci: str = ""
    name: str = ""
    memory_mib: int | None = None
    free_mib: int | None = None
    mig: str = ""
    fabric: str = ""
    compute_partition: str = ""
    memory_partition: str = ""


@dataclass(frozen=True)
class Process:
    """A process that uses a GPU."""

    pid: int
    name: str
    memory_mib: int | None


@dataclass(frozen=True)
class Devices:
    """All GPUs of a node.

    Attributes:
        on_bus: GPUs on the PCI bus by `vendor:device`.
        driver: version; empty if the driver is not loaded or does not report it.
        loaded: whether the vendor's driver is loaded.
        unread: reason why `devices` is empty although GPUs are on the bus.
        smi_error: first line of a failing nvidia-smi.
        missing: missing device file of the driver.
        closed: device file that this user may not open.
    """

    on_bus: dict[str, int] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    processes: tuple[Process, ...] = ()
    driver: str = ""
    loaded: bool = True
    unread: str = ""
    smi_error: str = ""
    missing: str = ""
    closed: str = ""
    nvswitches: int = 0
    fabric_manager: bool = False


def read_devices(vendor: str, root: Path = Path("/")) -> Devices:
    """Read the GPUs of a PCI vendor, `10de` or `1002`.

    Args:
        root: folder that contains proc/, sys/ and dev/.
    """
    on_bus = {pci: count for pci, count in accelerators(root).items() if pci.startswith(f"{vendor}:")}
    return _nvidia(on_bus, root) if vendor == "10de" else _amd(on_bus, root)


def _nvidia(on_bus: dict[str, int], root: Path) -> Devices:
    answer = query_nvidia(_QUERY)
    rows = answer.rows
    fabrics = ask_nvidia(_FABRIC)
    if len(fabrics) != len(rows):  # an older driver, or a GPU failed in between
        fabrics = [["", ""]] * len(rows)
    switches = [f for f in (root / _PCI).glob("*") if (read(f / "vendor"), read(f / "class")[:6]) == _NVSWITCH]
    programs = (read(process / "comm") for process in (root / "proc").glob("[0-9]*"))
    return Devices(
        on_bus=on_bus,
        devices=tuple(_nvidia_device(row, fabric) for row, fabric in zip(rows, fabrics, strict=True)),
        processes=tuple(Process(int(pid), name, _number(mib)) for pid, name, mib in ask_nvidia(_APPS, "compute-apps")),
        driver=rows[0][_QUERY.index("driver_version")] if rows else read(root / "sys/module/nvidia/version"),
        loaded=bool(rows) or (root / "sys/module/nvidia").is_dir(),
        unread="" if rows or answer.error else "nvidia-smi is not on PATH",
        smi_error=answer.error,
        nvswitches=len(switches),
        fabric_manager=any(program == _FABRIC_MANAGER for program in programs),
    )


def _nvidia_device(row: list[str], fabric: list[str]) -> Device:
    number, uuid, pci, name, _, total, free, mig = row
    known = [part for part in fabric if part not in _NOT_READABLE]
    return Device(
        number=int(number),
        uuid=uuid,
        pci=_DEVICE_ID.sub(r"\2:\1", pci).lower() if _DEVICE_ID.fullmatch(pci) else "",
        name=name,
        memory_mib=_number(total),
        free_mib=_number(free),
        mig="" if mig in _NOT_READABLE else mig,
        fabric=" ".join(known),
    )


def _amd(on_bus: dict[str, int], root: Path) -> Devices:
    """Read sysfs, as amd-smi does (Documentation/gpu/amdgpu of the kernel)."""
    functions = [f for f in functions_on_bus(root) if read(f / "vendor") == "0x1002"]
    devices = tuple(_amd_device(number, function) for number, function in enumerate(functions))
    loaded = (root / "sys/module/amdgpu").is_dir()
    readable = any(device.memory_mib is not None for device in devices)
    return Devices(
        on_bus=on_bus,
        devices=devices if readable else (),
        processes=tuple(_kfd_processes(root)),
        driver=read(root / "sys/module/amdgpu/version"),
        loaded=loaded,
        unread="" if readable else "the amdgpu driver reports no memory",
        missing=_missing(root / "dev/kfd") or _missing(root / "dev/dri") if loaded else "",
        closed=_closed(root / "dev/kfd") if loaded else "",
    )


def _amd_device(number: int, function: Path) -> Device:
    total, used = (_number(read(function / f"mem_info_vram_{kind}")) for kind in ("total", "used"))
    return Device(
        number=number,
        pci=pci_id(function),
        name=read(function / "product_name"),
        memory_mib=total // _MIB if total is not None else None,
        free_mib=(total - used) // _MIB if total is not None and used is not None else None,
        compute_partition=read(function / "current_compute_partition"),
        memory_partition=read(function / "current_memory_partition"),
    )


def _kfd_processes(root: Path) -> list[Process]:
    """Read the processes on AMD GPUs; each has a file `vram_<GPU id>` with its bytes per GPU."""
    found = []
    for folder in sorted((root / _KFD).glob("[0-9]*")):
        used = [_number(read(file)) or 0 for file in folder.glob("vram_*")]
        found.append(Process(int(folder.name), read(root / "proc" / folder.name / "comm"), sum(used) // _MIB))
    return found


def _missing(device: Path) -> str:
    return "" if device.exists() else f"{device} does not exist"


def _closed(device: Path) -> str:
    if not device.exists() or os.access(device, os.R_OK | os.W_OK):
        return ""
    return f"{device} may not be opened by this user"


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None
