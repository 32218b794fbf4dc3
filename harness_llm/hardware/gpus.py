"""Detect the kind and number of accelerators, from the PCI bus and the table `models/gpus.yaml`."""

from collections import Counter
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from harness_llm.errors import ConfigError
from harness_llm.fileio import read_yaml
from harness_llm.hardware import pci as bus
from harness_llm.hardware.pci import PLATFORMS, accelerators
from harness_llm.paths import Workspace

TABLE = "gpus.yaml"
NO_ACCELERATOR = bus.NO_ACCELERATOR
_VISIBLE = {"1002": "HIP_VISIBLE_DEVICES", "10de": "CUDA_VISIBLE_DEVICES"}


class Gpu(BaseModel):
    """One kind of accelerator.

    Attributes:
        pci: PCI ids, `vendor:device`.
        name: name in the vendor's tool.
        architecture: compiler target.
        formats: number formats below 16 bits of its matrix units.
        count: number in a usual node.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pci: tuple[str, ...]
    name: str
    memory_gb: int
    architecture: str
    formats: tuple[Literal["fp8", "mxfp4", "nvfp4"], ...]
    count: int

    @property
    def visible(self) -> str:
        """Environment variable with the devices that a process may use."""
        return _VISIBLE[self.vendor]

    @property
    def platform(self) -> str:
        """Build of programs for it: rocm or cuda."""
        return PLATFORMS[self.vendor]

    @property
    def vendor(self) -> str:
        """PCI id of its vendor."""
        return self.pci[0].partition(":")[0]


def load_gpus(workspace: Workspace) -> dict[str, Gpu]:
    """Return the supported kinds by GPU_NAME.

    Raises:
        ConfigError: invalid table.
    """
    file = workspace.benchmarks / TABLE
    try:
        return {name: Gpu.model_validate(facts) for name, facts in read_yaml(file).items()}
    except ValidationError as error:
        raise ConfigError("invalid table of accelerators", where=str(file), found=str(error)) from error


def detect_gpu(root: Path = Path("/"), workspace: Workspace | None = None) -> str | None:
    """Return the GPU_NAME of this machine's accelerators; None without accelerators.

    Args:
        root: folder that contains sys/.

    Raises:
        ConfigError: several kinds, or a kind that is not in the table.
    """
    workspace = workspace or Workspace()
    known = load_gpus(workspace)
    names = {pci: name for name, gpu in known.items() for pci in gpu.pci}
    found = Counter[str]()
    for pci, count in accelerators(root).items():
        found[names.get(pci, f"PCI {pci}")] += count
    if len(found) > 1:
        raise ConfigError(
            "several kinds of accelerators; a submission uses one",
            found=_listed(found, known),
            hint=f"choose one with --gpu or GPU_NAME: {', '.join([n for n in known if n in found] or known)}",
        )
    if found.keys() - known.keys():
        raise ConfigError(
            "no settings for the accelerators of this machine",
            where=str(workspace.benchmarks / TABLE),
            expected=f"one of {', '.join(known)}",
            found=_listed(found, known),
            hint="choose the most similar one (--gpu h200 or GPU_NAME=h200), or cpu to ignore the accelerators",
        )
    return next(iter(found), None)


def gpu_count(name: str, root: Path = Path("/"), workspace: Workspace | None = None) -> int:
    """Return the number of accelerators of kind `name`; if 0, the number of its vendor's accelerators.

    GPU_NAME may be a similar kind, if the table does not contain the machine's kind.
    """
    gpu, found = load_gpus(workspace or Workspace())[name], accelerators(root)
    return sum(found[pci] for pci in gpu.pci) or sum(n for pci, n in found.items() if pci.startswith(f"{gpu.vendor}:"))


def _listed(found: Counter[str], known: dict[str, Gpu]) -> str:
    return ", ".join(f"{count} x {known[name].name if name in known else name}" for name, count in found.items())
