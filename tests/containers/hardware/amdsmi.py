"""A fake of AMD's amdsmi: what harness_llm asks of it, answered from sysfs as the real library does."""

from enum import IntEnum
from pathlib import Path

_DEVICES = Path("/sys/bus/pci/devices")
_NAMES = {"0x74a1": "AMD Instinct MI300X", "0x74a5": "AMD Instinct MI325X", "0x75a3": "AMD Instinct MI355X"}


class AmdSmiException(Exception):
    """The driver does not answer."""


class AmdSmiVramType(IntEnum):
    """Kinds of memory."""

    HBM3 = 4
    HBM3E = 5


def amdsmi_init() -> None:
    if not Path("/sys/class/kfd").is_dir():
        raise AmdSmiException


def amdsmi_shut_down() -> None:
    pass


def amdsmi_get_processor_handles() -> list[Path]:
    return [device for device in sorted(_DEVICES.iterdir()) if _read(device, "device") in _NAMES]


def amdsmi_get_gpu_device_bdf(handle: Path) -> str:
    return handle.name


def amdsmi_get_gpu_asic_info(handle: Path) -> dict[str, str]:
    return {"market_name": _NAMES[_read(handle, "device")]}


def amdsmi_get_gpu_vram_info(handle: Path) -> dict[str, object]:
    return {"vram_type": AmdSmiVramType.HBM3 if _read(handle, "device") == "0x74a1" else AmdSmiVramType.HBM3E}


def _read(device: Path, name: str) -> str:
    return (device / name).read_text().strip()
