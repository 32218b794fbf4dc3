"""A base image as GPU vendors publish them: the system's Python brings vLLM's CUDA build, PyTorch and amdsmi.

PyTorch is its CPU build, some 3 GB smaller: the replay engine loads neither. One image stands for those of both
vendors, so that the layers on it are built once; what it has of one vendor finds no device on a node of the other.
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import base_image
from dockerd import Dockerd, run

from harness_llm.containers.container_spec import load_spec
from harness_llm.paths import CHECKOUT
from setup import environments, layers
from setup.uv import Uv

TAG = "harness-llm-test-vendor:bookworm"
_PYTHON = "3.11"
_PLACE = f"usr/local/lib/python{_PYTHON}/dist-packages"
_HARDWARE = Path(__file__).parent / "hardware"


def load(dockerd: Dockerd) -> str:
    """Give the image to a daemon; returns its name."""
    vllm = _vllm_version()
    archive = CHECKOUT / "build" / "containers" / f"vendor-vllm-{vllm}.tar"
    if not archive.is_file():
        _make(archive, vllm)
    dockerd.docker("import", str(archive), TAG)
    return TAG


def _vllm_version() -> str:
    """The version in the tag of the CUDA base image."""
    found = re.search(r":v([\d.]+)", load_spec().accelerators["cuda"].base_image)
    assert found
    return found[1]


def _make(archive: Path, vllm: str) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent) as name:
        root, unfinished = Path(name, "root"), Path(name, "vendor.tar")
        root.mkdir()
        run("tar", "--extract", "--file", base_image.archive(), "--directory", root)
        _install(root / _PLACE, vllm)
        shutil.copy(_HARDWARE / "amdsmi.py", root / _PLACE)
        run("tar", "--directory", root, "--create", "--file", unfinished, ".")
        unfinished.rename(archive)


def _install(folder: Path, vllm: str) -> None:
    """Where pip's configuration has no CPU build of PyTorch, its own index is asked, as for the environments."""
    torch = layers.pinned((CHECKOUT / "setup/requirements/constraints.txt").read_text(), "torch")
    assert torch
    with environments._exclusive() as lock:
        uv = Uv(dict(os.environ), lock)
        source = layers.torch_source(uv, sys.executable, torch)
        target = ("--target", str(folder), "--python-version", _PYTHON)
        uv("pip", "install", "--quiet", "--no-deps", *target, torch, f"vllm=={vllm}", *source)
