"""The PCI bus: which accelerators are on it. Standard library only, as it is asked before anything is installed."""

from collections import Counter
from pathlib import Path

from harness_llm.hardware.sysfs import read

PLATFORMS = {"1002": "rocm", "10de": "cuda"}
"""What programs for the accelerators of a PCI vendor, AMD or NVIDIA, are built with. Other vendors' are ignored."""
NO_ACCELERATOR = "cpu"
"""The GPU_NAME of a machine without an accelerator."""
_CLASSES = ("0x0302", "0x1200")  # 3D controllers and processing accelerators: not made for a screen


def functions_on_bus(root: Path) -> list[Path]:
    """The folders of the accelerators that the PCI bus shows, in order of address; `root` is where sys/ is read."""
    return [f for f in sorted((root / "sys/bus/pci/devices").glob("*")) if read(f / "class").startswith(_CLASSES)]


def accelerators(root: Path = Path("/")) -> Counter[str]:
    """How many there are of each kind that engines run on, by `vendor:device`."""
    return Counter(pci for pci in map(_id, functions_on_bus(root)) if pci.partition(":")[0] in PLATFORMS)


def _id(function: Path) -> str:
    return f"{read(function / 'vendor')}:{read(function / 'device')}".replace("0x", "")
