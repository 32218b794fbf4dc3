"""Accelerators on the PCI bus. Standard library only, because set-up uses it before any package is installed."""

from collections import Counter
from pathlib import Path

from harness_llm.hardware.sysfs import read

PLATFORMS = {"1002": "rocm", "10de": "cuda"}
"""Build of programs by PCI vendor of the accelerators, AMD or NVIDIA. Other vendors are ignored."""
NO_ACCELERATOR = "cpu"
"""The GPU_NAME of a machine without an accelerator."""
NVIDIA = "0x10de"
"""Vendor in sysfs."""
_CLASSES = ("0x0302", "0x1200")  # 3D controller without display, processing accelerator


def functions_on_bus(root: Path) -> list[Path]:
    """Return the sysfs folders of accelerators by address; `root` contains sys/."""
    return [f for f in sorted((root / "sys/bus/pci/devices").glob("*")) if read(f / "class").startswith(_CLASSES)]


def accelerators(root: Path = Path("/")) -> Counter[str]:
    """Count supported accelerators by `vendor:device`."""
    return Counter(pci for pci in map(pci_id, functions_on_bus(root)) if pci.partition(":")[0] in PLATFORMS)


def pci_id(function: Path) -> str:
    """Return `vendor:device`."""
    return f"{read(function / 'vendor')}:{read(function / 'device')}".replace("0x", "")
