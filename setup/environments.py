"""Update the virtual environments of a checkout from the pinned packages.

`.venv` has the CPU build of vLLM, `.venv-cuda` the CUDA build. Quantization has its own environment, `.venv-quantize`
or `.venv-quantize-cuda`: llm-compressor and vLLM need different versions of compressed-tensors. Quark has
`.venv-quark`, the reference's evaluators have `.venv-graders`. An environment consists of layers. The stamp of a layer
is written last and contains a digest of the layer's sources. Standard library only: this runs before any package is
installed.

Image builds use this too: HARNESS_LLM_ENVIRONMENTS is the folder of the environments, and HARNESS_LLM_IMAGE marks a
finished image.

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
    """Return the digest of a layer's sources, including the checkout's path (scripts contain it)."""
    sources = [
        sys.version_info[:2],
        str(Path.cwd()),
        tomllib.loads(_PROJECT.read_text())["project"],
        layer.packages,
        digest(layer.on) if layer.on else None,
    ]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


def is_current(layer: Layer) -> bool:
    """Return whether a layer is complete and matches the checkout."""
    complete = layer.stamp.is_file() and all(part.exists() for part in layer.parts)
    return complete and layer.stamp.read_text() == digest(layer)


def stale(names: Sequence[str]) -> list[Layer]:
    """Return the layers to install for `names`, in order."""
    wanted: list[Layer] = []
    for layer in (LAYERS[name] for name in names):
        wanted += [needed for needed in (layer.on, layer) if needed and needed not in wanted]
    return [layer for layer in wanted if not is_current(layer)]


def check_space(layers: Sequence[Layer], free: int) -> None:
    """Require disk space for the environments that do not exist yet."""
    needed = sum(layer.gib for layer in layers if not layer.folder.exists())
    if free < needed * _GIB:
        raise EnvironmentMissing(
            "not enough disk space for the virtual environments",
            where=str(Path.cwd()),
            expected=f"{needed:.1f} GiB",
            found=f"{free / _GIB:.1f} GiB",
            hint="free some space, or move the checkout to another disk, and run the same command again",
        )


def check_idle(folder: Path, programs: Iterable[tuple[int, str]]) -> None:
    """Require that no process of `programs` (process id, program file) runs from the environment."""
    users = [f"process {pid}" for pid, program in programs if program.startswith(f"{folder.absolute()}/bin/")]
    if users:
        raise EnvironmentMissing(
            "environment to be replaced is in use",
            where=str(folder),
            found=", ".join(users),
            hint="wait for these processes or stop them, and run the same command again",
        )


def ensure(names: Sequence[str]) -> None:
    """Update layers and the layers below them.

    Raises:
        EnvironmentMissing: no pip, network or disk space, an environment to replace is in use, or a finished image.
    """
    if not stale(names):
        return
    if image := os.environ.get("HARNESS_LLM_IMAGE"):
        raise EnvironmentMissing(
            "packages of this image differ from the checkout's pins",
            where=", ".join(str(layer.folder) for layer in stale(names)),
            hint=f"build the image again, on the host: bash setup/build_{image}_env.sh",
        )
    with _exclusive() as lock:
        layers = stale(names)
        check_space(layers, shutil.disk_usage(".").free)
        for layer in layers:
            if not layer.on and layer.folder.exists():
                check_idle(layer.folder, _programs())
        uv = Uv(os.environ, lock)
        for layer in layers:
            _install(layer, uv)


def lock(options: Sequence[str]) -> None:
    """Pin all direct and indirect packages of pyproject.toml; pass `options` to uv."""
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
    """Return uv's arguments for a layer: its section of pyproject.toml and its constraints.

    A CUDA layer has no constraints, because they select the CPU build of PyTorch.
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


def _install(layer: Layer, uv: Uv) -> None:
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
    """Hold the checkout's set-up lock; yield its descriptor."""
    _LOCK.parent.mkdir(exist_ok=True)
    with _LOCK.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write("waiting for another set-up of this checkout\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _programs() -> Iterator[tuple[int, str]]:
    """Yield process ids and programs as called, because an environment's python is a symbolic link."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            program = (process / "cmdline").read_text(errors="replace").partition("\0")[0]
            yield int(process.name), os.path.normpath(process.joinpath("cwd").readlink() / program)


def main() -> None:
    """Lock the packages, or update the named layers."""
    arguments = sys.argv[1:]
    if arguments[0] == "lock":
        lock(arguments[1:])
    else:
        ensure(arguments)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
