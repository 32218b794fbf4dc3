"""Which accelerators this machine has: its PCI bus, read by the table `models/gpus.yaml`. No tool is needed."""

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
        pci: its ids on the PCI bus, `vendor:device`.
        name: what its vendor's tool calls it.
        architecture: what compilers call it.
        formats: what its matrix units multiply in, below 16 bits.
        count: of a usual node.
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
        """The environment variable that names the devices which a process may use."""
        return _VISIBLE[self.vendor]

    @property
    def platform(self) -> str:
        """What programs for it are built with, rocm or cuda."""
        return PLATFORMS[self.vendor]

    @property
    def vendor(self) -> str:
        """Its vendor's id on the PCI bus."""
        return self.pci[0].partition(":")[0]


def load_gpus(workspace: Workspace) -> dict[str, Gpu]:
    """The kinds that there are settings for, by GPU_NAME."""
    file = workspace.benchmarks / TABLE
    try:
        return {name: Gpu.model_validate(facts) for name, facts in read_yaml(file).items()}
    except ValidationError as error:
        raise ConfigError("the table of accelerators is wrong", where=str(file), found=str(error)) from error


def detect_gpu(root: Path = Path("/"), workspace: Workspace | None = None) -> str | None:
    """The GPU_NAME of this machine's accelerators; None where there are none.

    Args:
        root: of the file system, in which `sys/` is read.

    Raises:
        ConfigError: there are several kinds, or one that the table does not have.
    """
    workspace = workspace or Workspace()
    known = load_gpus(workspace)
    names = {pci: name for name, gpu in known.items() for pci in gpu.pci}
    found = Counter[str]()
    for pci, count in accelerators(root).items():
        found[names.get(pci, f"PCI {pci}")] += count
    if len(found) > 1:
        raise ConfigError(
            "this machine has accelerators of several kinds, and one submission uses one",
            found=_listed(found, known),
            hint=f"choose with --gpu or GPU_NAME: {', '.join([n for n in known if n in found] or known)}",
        )
    if found.keys() - known.keys():
        raise ConfigError(
            "there are no settings for the accelerators of this machine",
            where=str(workspace.benchmarks / TABLE),
            expected=f"one of {', '.join(known)}",
            found=_listed(found, known),
            hint="name the most similar one (--gpu h200, or GPU_NAME=h200), or cpu to leave them alone",
        )
    return next(iter(found), None)


def gpu_count(name: str, root: Path = Path("/"), workspace: Workspace | None = None) -> int:
    """How many accelerators called `name` in the table this machine has; if none, how many of its vendor.

    GPU_NAME may name the settings of a similar accelerator, for one that the table does not have.
    """
    gpu, found = load_gpus(workspace or Workspace())[name], accelerators(root)
    return sum(found[pci] for pci in gpu.pci) or sum(n for pci, n in found.items() if pci.startswith(f"{gpu.vendor}:"))


def _listed(found: Counter[str], known: dict[str, Gpu]) -> str:
    return ", ".join(f"{count} x {known[name].name if name in known else name}" for name, count in found.items())
