"""Layers of the virtual environments: packages and installation.

Standard library only: this runs before any package is installed.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness_llm.errors import EnvironmentMissing
from setup.uv import Uv

REQUIREMENTS = Path("setup/requirements")
_RULES = Path("harness_llm/config/rules")
_LOADGEN = re.compile(r"^loadgen:\n  package: (\S+)\n  version: (\S+)$", re.MULTILINE)
_ENVIRONMENTS = Path(os.environ.get("HARNESS_LLM_ENVIRONMENTS", ""))
_TORCH = re.compile(r"(torch|torchaudio|torchvision|triton|pytorch-triton.*|nvidia-.*)")


@dataclass(frozen=True)
class Layer:
    """Packages of one requirements file in one environment.

    Attributes:
        name: name of the requirements file.
        folder: the environment.
        gib: disk space.
        on: layer to install first; None: this layer creates the environment.
    """

    name: str
    folder: Path
    gib: float
    on: "Layer | None" = None

    @property
    def requirements(self) -> Path:
        """The pinned packages."""
        return REQUIREMENTS / f"{self.name}.txt"

    @property
    def python(self) -> Path:
        """The environment's own interpreter."""
        return self.folder / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """File with the digest of the layer's sources; exists only for a complete layer."""
        return self.folder / f"harness-llm-{self.name}.stamp"

    @property
    def parts(self) -> list[Path]:
        """Paths that exist in a complete layer."""
        return [self.python]

    @property
    def packages(self) -> str:
        """The pinned packages, one per line."""
        return self.requirements.read_text()

    def install(self, uv: Uv) -> None:
        """Create the environment if the layer is the first one, and install the packages."""
        if not self.on:
            uv("venv", "--quiet", "--clear", "--python", sys.executable, str(self.folder))
        install = ("pip", "install", "--python", str(self.python), "--no-deps")
        requirements = str(self.requirements)
        if torch := pinned(self.packages, "torch"):
            uv(*install, torch, *torch_source(uv, str(self.python), torch))
        package = () if self.on else ("--editable", ".")
        uv(*install, "--build-constraints", requirements, "--requirement", requirements, *package)


@dataclass(frozen=True)
class CudaLayer(Layer):
    """A layer with the CUDA build of PyTorch from the package index.

    Its version has no suffix. `torch==2.13.0` also matches `2.13.0+cpu`, which pip's configuration may offer on CPU
    machines; `===` does not, but `uv pip compile` writes `==`. So the installation replaces `==` by `===`.
    """

    def install(self, uv: Uv) -> None:
        """Create the environment, install the packages and check the build of PyTorch.

        Raises:
            EnvironmentMissing: the installed PyTorch is not a CUDA build.
        """
        uv("venv", "--quiet", "--clear", "--python", sys.executable, str(self.folder))
        requirements = str(self.requirements)
        uv(
            *("pip", "install", "--python", str(self.python), "--no-deps", "--build-constraints", requirements),
            *(
                "--requirement",
                requirements,
                str(pinned(self.packages, "torch")).replace("==", "==="),
                "--editable",
                ".",
            ),
        )
        check_cuda_build(self.python)


@dataclass(frozen=True)
class Separate(Layer):
    """An environment with separate pins, whose programs do not import this project."""

    def install(self, uv: Uv) -> None:
        """Create the environment and install the packages."""
        uv("venv", "--quiet", "--clear", "--python", sys.executable, str(self.folder))
        requirements = str(self.requirements)
        uv("pip", "install", "--python", str(self.python), "--no-deps", "--requirement", requirements)


@dataclass(frozen=True)
class LoadGens(Layer):
    """LoadGen of each round, in separate folders, because all have the same module name."""

    @property
    def packages(self) -> str:
        """The pins of all rounds, oldest first; parsed without a YAML library."""
        files = sorted(_RULES.glob("v*.yaml"))
        pins = (pin for rules in files for pin in _LOADGEN.findall(rules.read_text()))
        return "\n".join(map("==".join, pins))

    @property
    def parts(self) -> list[Path]:
        """The folders in the order of the pins."""
        return [self.folder / self.name / pin.partition("==")[2] for pin in self.packages.splitlines()]

    def install(self, uv: Uv) -> None:
        """Install each version into its folder."""
        shutil.rmtree(self.folder / self.name, ignore_errors=True)
        for pin, folder in zip(self.packages.splitlines(), self.parts, strict=True):
            uv("pip", "install", "--quiet", "--python", str(self.python), "--no-deps", "--target", str(folder), pin)


@dataclass(frozen=True)
class Addition(Layer):
    """An optional package at its pinned version, with its requirements that the layer below lacks.

    The CPU build, the CUDA build and the base images have different versions of these requirements.
    """

    def install(self, uv: Uv) -> None:
        """Install the packages."""
        below = {pin.partition("==")[0] for pin in lacking(self.on.packages, ())} if self.on else set()
        if isinstance(self.on, OnBase):
            below |= set(installed(Path(sys.executable)))
        missing = lacking(self.packages, below - {self.name})
        uv("pip", "install", "--python", str(self.python), "--no-deps", *missing)


@dataclass(frozen=True)
class OnBase(Layer):
    """An environment with access to the packages of a base image's Python: PyTorch and vLLM.

    Attributes:
        brings: packages that the base image must have.
        kept: pattern of the base image's packages to use; all others come from the pins.
    """

    brings: tuple[str, ...] = ("torch",)
    kept: re.Pattern[str] = _TORCH

    def install(self, uv: Uv) -> None:
        """Create the environment and install the packages that it does not use from the base image."""
        uv("venv", "--quiet", "--clear", "--system-site-packages", "--python", sys.executable, str(self.folder))
        seen = {name for name in installed(self.python) if self.kept.fullmatch(name)}
        if missing := set(self.brings) - seen:
            raise EnvironmentMissing(
                f"missing packages in the base image's Python: {', '.join(sorted(missing))}",
                where=sys.executable,
                hint="build with a BASE_IMAGE whose Python has vLLM for this accelerator",
            )
        install = ("pip", "install", "--python", str(self.python), "--no-deps")
        constraints = ("--build-constraints", str(self.requirements))
        uv(*install, *constraints, *lacking(self.packages, seen), "--editable", ".")


_MAIN, _QUANTIZE_FOLDER, _QUARK_FOLDER = (_ENVIRONMENTS / n for n in (".venv", ".venv-quantize", ".venv-quark"))
_CUDA_MAIN = _ENVIRONMENTS / ".venv-cuda"
_CPU = Layer("cpu", _MAIN, 4.0)
_CUDA = CudaLayer("cuda", _CUDA_MAIN, 8.0)
_HOST = Layer("host", Path(".venv-host"), 0.4)
_QUANTIZE = Layer("quantize", _QUANTIZE_FOLDER, 0.5)
_QUANTIZE_CUDA = CudaLayer("quantize-cuda", _ENVIRONMENTS / ".venv-quantize-cuda", 0.3)
_QUARK = Layer("quark", _QUARK_FOLDER, 0.8)
_DEV = Layer("dev", _MAIN, 0.2, on=_CPU)
_RAY = Addition("ray", _MAIN, 0.3, on=_CPU)
_OPTUNA = Addition("optuna", _MAIN, 0.1, on=_CPU)
_GRADERS = Separate("graders", _ENVIRONMENTS / ".venv-graders", 0.5)
LOCKED = (_CPU, _CUDA, _HOST, _QUANTIZE, _QUANTIZE_CUDA, _QUARK, _DEV, _RAY, _OPTUNA, _GRADERS)
# Of images whose base brings PyTorch and vLLM for its accelerators; with the requirements of the layer that is named.
_BASE = OnBase("host", _MAIN, 0.4, brings=("torch", "vllm"), kept=re.compile(".*"))
LAYERS = {
    **{layer.name: layer for layer in LOCKED},
    "loadgen": LoadGens("loadgen", _MAIN, 0.1, on=_CPU),
    "loadgen-cuda": LoadGens("loadgen", _CUDA_MAIN, 0.1, on=_CUDA),
    "ray-cuda": Addition("ray", _CUDA_MAIN, 0.3, on=_CUDA),
    "optuna-cuda": Addition("optuna", _CUDA_MAIN, 0.1, on=_CUDA),
    "base-host": _BASE,
    "base-quantize": OnBase("quantize", _QUANTIZE_FOLDER, 0.5),
    "base-quark": OnBase("quark", _QUARK_FOLDER, 0.8),
    "base-loadgen": LoadGens("loadgen", _MAIN, 0.1, on=_BASE),
    "base-ray": Addition("ray", _MAIN, 0.3, on=_BASE),
    "base-optuna": Addition("optuna", _MAIN, 0.1, on=_BASE),
}


def installed(python: Path) -> list[str]:
    """Return the normalized names of an interpreter's packages."""
    program = "import importlib.metadata as m; print(*(d.metadata['Name'] for d in m.distributions()), sep='\\n')"
    names = subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=True).stdout
    return [re.sub(r"[-_.]+", "-", name).lower() for name in names.split()]


def lacking(requirements: str, names: Iterable[str]) -> list[str]:
    """Return the pins of a requirements file without those of `names`."""
    excluded = frozenset(names)
    pins = (line.strip() for line in requirements.splitlines() if "==" in line and not line.startswith((" ", "#")))
    return [pin for pin in pins if pin.partition("==")[0] not in excluded]


def pinned(requirements: str, package: str) -> str | None:
    """Return the line of a requirements file that pins `package`."""
    return next((line for line in requirements.splitlines() if line.startswith(f"{package}==")), None)


def check_cuda_build(python: Path) -> None:
    """Require a CUDA build of PyTorch in the environment of `python`.

    Raises:
        EnvironmentMissing: torch.version.cuda is None.
    """
    program = "import torch; print(torch.__version__, torch.version.cuda)"
    done = subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=False)
    version, _, cuda = done.stdout.strip().partition(" ")
    if done.returncode or cuda in ("", "None"):
        raise EnvironmentMissing(
            "the installed PyTorch is not a CUDA build",
            where=str(python),
            expected="torch.version.cuda is set",
            found=version or done.stderr.strip()[-500:],
            hint="remove the CPU wheels of PyTorch from the package sources that `pip config list` shows",
        )


def torch_source(uv: Uv, python: str, torch: str) -> tuple[str, ...]:
    """Return uv's option for PyTorch's index; none if pip's configured sources have this build."""
    if uv.no_index or uv.offers(python, torch):
        return ()
    return ("--torch-backend", "cpu")
