"""Check of the driver's version."""

import re
from collections.abc import Mapping

from harness_llm.hardware.drivers import LAYER_CUDA, is_older, minimum_driver
from harness_llm.hardware.gpu_state import Devices
from harness_llm.pipeline.doctor.check_result import CheckResult, failed, not_checked, passed


def check_nvidia_driver(found: Devices, cuda: tuple[int, int]) -> CheckResult:
    """Check that the driver runs programs that are built with `cuda`, (major, minor)."""
    name = "GPU driver"
    if not found.driver:
        return not_checked(name, "nvidia-smi and /sys/module/nvidia report no version")
    minimum, built = minimum_driver(cuda), ".".join(map(str, cuda))
    if is_older(found.driver, minimum):
        return failed(
            name,
            found.driver,
            expected=f"{minimum} or newer, which CUDA {built} needs",
            hint="install a newer driver for data centers; containers need only that of CUDA 12",
        )
    return passed(name, f"{found.driver}, CUDA {built}")


def check_amd_driver(found: Devices) -> CheckResult:
    """Report the version of the amdgpu driver; one that is part of the kernel has none."""
    return passed("GPU driver", f"amdgpu {found.driver or 'of the kernel'}")


def installed_cuda(packages: Mapping[str, str]) -> tuple[int, int]:
    """CUDA of the installed PyTorch, from a version such as `2.13.0+cu129`; without a tag, that of the layer `cuda`.

    Args:
        packages: installed versions by name, from `fingerprint.versions`.
    """
    tag = re.search(r"\+cu(\d+)(\d)$", packages.get("torch", ""))
    return (int(tag[1]), int(tag[2])) if tag else LAYER_CUDA
