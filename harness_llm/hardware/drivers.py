"""The NVIDIA driver that each build of vLLM needs."""

import re

MINIMUM_DRIVERS = {12: "525.60.13", 13: "580.65.06"}
"""Oldest Linux driver by major version of CUDA, with NVIDIA's minor version compatibility.

docs.nvidia.com/cuda/cuda-toolkit-release-notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor
Version Compatibility" has 525 for 12.x and 580 for 13.x; the table of toolkit releases adds the rest of the version.
"""
LAYER_CUDA = (13, 0)
"""CUDA of `.venv-cuda`: what PyTorch in setup/requirements/cuda.txt is built with."""
_IMAGE_CUDA = re.compile(r"-cu(\d+)(\d)$")


def image_cuda(base_image: str) -> tuple[int, int]:
    """CUDA of an image of vLLM, from its tag: `v0.30.0-cu129` is 12.9.

    Raises:
        ValueError: the tag does not contain it.
    """
    found = _IMAGE_CUDA.search(base_image)
    if not found:
        raise ValueError(f"no version of CUDA in the tag of {base_image}")
    return int(found[1]), int(found[2])


def minimum_driver(cuda: tuple[int, int]) -> str:
    """The oldest driver for programs that are built with `cuda`, (major, minor)."""
    return MINIMUM_DRIVERS[cuda[0]]


def is_older(driver: str, minimum: str) -> bool:
    """Whether a driver, `575.57.08` as nvidia-smi prints it, is older than `minimum`."""
    return _parts(driver) < _parts(minimum)


def _parts(driver: str) -> tuple[int, ...]:
    return tuple(int(part) for part in driver.strip().split("."))
