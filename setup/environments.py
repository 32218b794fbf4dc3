"""The virtual environments of a checkout, brought up to date from the pinned packages.

`.venv` has the CPU build of vLLM, `.venv-cuda` the CUDA build. Quantization has an environment of its own,
`.venv-quantize` or `.venv-quantize-cuda`: llm-compressor and vLLM need different versions of compressed-tensors. Quark
has `.venv-quark`, the reference's evaluators have `.venv-graders`. An environment has one layer or more. The stamp of a
layer is written last and contains a digest of the layer's sources. Standard library only: this runs before any package
is installed.

The images of containers are made by this, too: there HARNESS_LLM_ENVIRONMENTS names the folder of the environments,
HARNESS_LLM_ROUND the one round whose LoadGen is wanted, and HARNESS_LLM_IMAGE says that the image is finished.

Usage: python -m setup.environments (lock [uv option ...] | layer ...)
"""

import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from harness_llm.errors import EnvironmentMissing, exit_code_of
from setup.layers import LAYERS, LOCKED, REQUIREMENTS, CudaLayer, Layer, Separate, pinned, torch_source
from setup.uv import Uv

_PROJECT = Path("pyproject.toml")
_LOCK = Path("build/setup.lock")
_GIB = 1024**3


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
        for layer in LOCKED:
            uv(
                *("pip", "compile", "--quiet", "--custom-compile-command", "make lock"),
                *("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28"),
                *("--excludes", str(REQUIREMENTS / "excludes.txt"), "--output-file", str(layer.requirements)),
                *_lock_sources(layer, uv),
                *options,
                find_links=not isinstance(layer, CudaLayer),
            )


def _lock_sources(layer: Layer, uv: Uv) -> tuple[str, ...]:
    """The section of pyproject.toml that a layer is locked from, and its constraints.

    A CUDA layer has no constraints, because those of the others select the CPU build of PyTorch.
    """
    if layer.on:
        return ("--group", layer.name, "--constraints", str(layer.on.requirements))
    if isinstance(layer, Separate):
        return ("--group", layer.name)
    extra = (str(_PROJECT), "--extra", layer.name)
    if isinstance(layer, CudaLayer):
        return extra
    constraints = REQUIREMENTS / "constraints.txt"
    torch = str(pinned(constraints.read_text(), "torch"))
    return (*extra, "--constraints", str(constraints), *torch_source(uv, sys.executable, torch))


def _make(layer: Layer, uv: Uv) -> None:
    sys.stderr.write(f"installing {layer.name} into {layer.folder}\n")
    start = time.monotonic()
    layer.stamp.unlink(missing_ok=True)
    layer.install(uv)
    unfinished = layer.stamp.with_suffix(".tmp")
    unfinished.write_text(digest(layer))
    unfinished.rename(layer.stamp)
    sys.stderr.write(f"  {layer.name} is ready after {time.monotonic() - start:.0f} s\n")


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


def main() -> None:
    """Lock the packages, or bring the named layers up to date."""
    arguments = sys.argv[1:]
    if arguments[0] == "lock":
        lock(arguments[1:])
    else:
        ensure(arguments)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
