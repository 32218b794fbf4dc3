"""Minimum NVIDIA driver by CUDA version."""

import re

MINIMUM_DRIVERS = {12: "525.60.13", 13: "580.65.06"}
"""Minimum Linux driver by major version of CUDA, with NVIDIA's minor version compatibility.

docs.nvidia.com/cuda/cuda-toolkit-release-notes: "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor
Version Compatibility" for 525 (12.x) and 580 (13.x), the table of toolkit releases for the rest of the version.
"""
IMAGE_BRANCHES = {(12, 9): (535, 550, 560, 565, 570, 575)}
"""Driver branches, and newer ones, for which NVIDIA's Container Toolkit starts an image, by its CUDA version.

NVIDIA_REQUIRE_CUDA of nvidia/cuda:12.9.1, the base of vLLM's image; 575 is the branch of CUDA 12.9.
"""
LAYER_CUDA = (13, 0)
"""CUDA version of `.venv-cuda`: that of PyTorch in setup/requirements/cuda.txt."""
_IMAGE_CUDA = re.compile(r"-cu(\d+)(\d)$")


def image_cuda(base_image: str) -> tuple[int, int]:
    """Return the CUDA version in the tag of a vLLM image: `v0.30.0-cu129` is 12.9.

    Raises:
        ValueError: no version in the tag.
    """
    found = _IMAGE_CUDA.search(base_image)
    if not found:
        raise ValueError(f"no CUDA version in the tag of {base_image}")
    return int(found[1]), int(found[2])


def minimum_driver(cuda: tuple[int, int]) -> str:
    """Return the minimum driver for programs built with `cuda`, (major, minor)."""
    return MINIMUM_DRIVERS[cuda[0]]


def suits_image(driver: str, cuda: tuple[int, int]) -> bool:
    """Return whether IMAGE_BRANCHES contains the driver's branch; True for images of other CUDA versions."""
    branch, known = _parts(driver)[0], IMAGE_BRANCHES.get(cuda, (0,))
    return branch in known or branch > max(known)


def is_older(driver: str, minimum: str) -> bool:
    """Return whether a driver version, `575.57.08`, is older than `minimum`."""
    return _parts(driver) < _parts(minimum)


def _parts(driver: str) -> tuple[int, ...]:
    return tuple(int(part) for part in driver.strip().split("."))
