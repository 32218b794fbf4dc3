"""Checks of the GPUs: count, model, driver, memory, other processes, partitions and NVLink fabric."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness_llm.config.commands import engine_setting, typed
from harness_llm.hardware.drivers import LAYER_CUDA, is_older, minimum_driver
from harness_llm.hardware.gpu_state import Device, Devices
from harness_llm.hardware.gpus import Gpu
from harness_llm.pipeline.doctor.check_result import CheckResult, failed, not_checked, passed, warned

_GIB_MIB = 1024
_COMPLETED = "Completed Success"
_START_FABRIC_MANAGER = "sudo systemctl enable --now nvidia-fabricmanager"
_INSTALL = {
    "10de": "install NVIDIA's driver for data centers, then: sudo modprobe nvidia; nvidia-smi",
    "1002": "install AMD's amdgpu driver, then: sudo modprobe amdgpu; amd-smi list",
}


@dataclass(frozen=True)
class Wanted:
    """GPUs that a run requires.

    Attributes:
        name: GPU_NAME.
        gpu: GPU model of the settings.
        count: number of devices of all replicas.
        utilization: largest gpu_memory_utilization of the scenarios; 0 if no engine here reserves memory.
        cuda: (major, minor) version of CUDA; None skips the check of the driver version.
        without: what to type to run without GPUs.
        visible: devices visible to this process, by number or UUID; empty for all.
        selector: environment variable that selects devices.
        opened_here: whether this user must be able to open the device files. Containers run with the groups of the
            files (device_groups of setup/containers.yaml), of which the user need not be a member.
    """

    name: str
    gpu: Gpu
    count: int
    utilization: float
    cuda: tuple[int, int] | None
    selector: str
    without: str
    visible: Sequence[str] = ()
    opened_here: bool = True


def check_gpus(wanted: Wanted, found: Devices, *, in_container: bool) -> Iterator[CheckResult]:
    """Run all checks of the GPUs of one node."""
    yield _count(wanted, found)
    if not found.on_bus:
        return
    yield _kind(wanted, found)
    if not found.loaded:
        yield failed("GPU driver", "the driver is not loaded", hint=_INSTALL[wanted.gpu.vendor])
        return
    if wanted.gpu.vendor == "1002":
        # The driver in the kernel has no version.
        yield passed("GPU driver", f"amdgpu {found.driver or 'of the kernel'}")
    elif wanted.cuda:
        yield check_nvidia_driver(found, wanted.cuda)
    if found.missing:
        yield failed("GPU access", found.missing, hint=_INSTALL[wanted.gpu.vendor])
    if found.closed and wanted.opened_here:
        yield failed(
            "GPU access", found.closed, hint='sudo usermod --append --groups render,video "$USER", then log in again'
        )
    used = chosen(wanted, found.devices)
    if found.unread or found.smi_error:
        yield _unread(wanted, found, in_container=in_container)
    else:
        yield from _memory(wanted, used)
        yield from _processes(found)
        yield from _partitions(used)
    yield from _fabric(found, used, in_container=in_container)


def _unread(wanted: Wanted, found: Devices, *, in_container: bool) -> CheckResult:
    """No engine starts if nvidia-smi fails; containers may lack it (NVIDIA_DRIVER_CAPABILITIES without utility)."""
    if error := found.smi_error:
        hint = "sudo reboot" if "version mismatch" in error else "sudo dmesg | grep -i xid"
        hint = f"on the host: {hint}" if in_container else hint
        return failed("GPU access", error, where="nvidia-smi", expected="all GPUs", hint=hint)
    if wanted.gpu.vendor == "10de" and not in_container:
        package = f"nvidia-utils-{found.driver.partition('.')[0]}-server"
        hint = f"install nvidia-smi of the driver, on Ubuntu: sudo apt install {package}"
        return failed("GPU access", found.unread, hint=hint)
    return not_checked("GPU memory, partitions", found.unread)


def chosen(wanted: Wanted, devices: Sequence[Device]) -> list[Device]:
    """Devices that the replicas will use: the first visible ones."""
    return _visible(wanted, devices)[: wanted.count]


def _visible(wanted: Wanted, devices: Sequence[Device]) -> list[Device]:
    names = wanted.visible
    visible = [d for d in devices if str(d.number) in names or any(n and d.uuid.startswith(n) for n in names)]
    return visible or list(devices)


def _count(wanted: Wanted, found: Devices) -> CheckResult:
    name = "GPUs"
    here = len(wanted.visible) or sum(found.on_bus.values())
    answering = len(found.devices) if found.devices else here
    kinds = found.devices[0].name if found.devices and found.devices[0].name else wanted.gpu.name
    expected = f"{wanted.count} x {wanted.gpu.name}"
    if not found.on_bus:
        hint = f"without GPUs: {wanted.without}"
        return failed(name, "none on the PCI bus", expected=expected, hint=hint)
    if here < wanted.count:
        hint = typed(gpu_count=here)
        return failed(name, f"{here} x {kinds}", expected=expected, hint=hint)
    if answering < wanted.count:
        return failed(
            name,
            f"{here} on the PCI bus, of which the driver reports {answering}",
            expected=expected,
            hint=f"in a job or pod with {answering} of the GPUs: {typed(gpu_count=answering)}; "
            "otherwise, sudo dmesg | grep -i -e xid -e amdgpu shows the cause, and a reboot often helps",
        )
    return passed(name, f"{here} x {kinds}" + (f", {wanted.count} used" if wanted.count < here else ""))


def _kind(wanted: Wanted, found: Devices) -> CheckResult:
    """Check the devices that the driver reports: containers and jobs with some of the GPUs see the whole PCI bus."""
    name = "GPU kind"
    reported = [device for device in _visible(wanted, found.devices) if device.pci]
    used = Counter(device.pci for device in reported[: wanted.count]) or found.on_bus
    others = {pci: count for pci, count in used.items() if pci not in wanted.gpu.pci}
    listed = ", ".join(f"{count} x PCI {pci}" for pci, count in others.items())
    if not others:
        return passed(name, f"settings of {wanted.name}")
    numbers = [device.number for device in reported if device.pci in wanted.gpu.pci]
    if numbers or (len(others) < len(used) and not wanted.visible):
        return failed(
            name,
            listed,
            expected=f"{wanted.gpu.name} only: replicas use the first devices, of any kind",
            hint=f"select devices by number: export {wanted.selector}={_numbers(numbers) or '0,1,...'}",
        )
    return warned(
        name,
        listed,
        expected=f"{wanted.gpu.name}: settings and targets of {wanted.name} apply to it",
        hint=f"determine the targets of this GPU, and write them into code/user_{wanted.name}.conf",
    )


def _memory(wanted: Wanted, used: Sequence[Device]) -> Iterator[CheckResult]:
    """vLLM does not start with less free memory (request_memory in vllm/v1/worker/utils.py of 0.30.0)."""
    name = "GPU memory"
    if not wanted.utilization:
        return
    if any(device.free_mib is None or device.memory_mib is None for device in used):
        yield not_checked(name, "the driver reports no free memory")
        return
    needs = {d.number: (d.free_mib or 0, (d.memory_mib or 0) * wanted.utilization) for d in used}
    short = {number: (free, need) for number, (free, need) in needs.items() if free < need}
    if not short:
        least = min((free for free, _ in needs.values()), default=0)
        yield passed(name, f"at least {_gib(least)} free on each")
        return
    yield failed(
        name,
        "; ".join(f"GPU {number}: {_gib(free)} free" for number, (free, _) in short.items()),
        expected=f"{_gib(max(need for _, need in short.values()))}, gpu_memory_utilization {wanted.utilization:g}",
        hint=f"stop the processes that use the GPUs, or {engine_setting('llm_config.gpu_memory_utilization', '...')}",
    )


def _processes(found: Devices) -> Iterator[CheckResult]:
    if not found.processes:
        yield passed("GPU processes", "none")
        return
    listed = ", ".join(
        f"{process.pid} {process.name}".strip()
        + (f" ({_gib(process.memory_mib)})" if process.memory_mib is not None else "")
        for process in found.processes
    )
    pids = " ".join(dict.fromkeys(str(process.pid) for process in found.processes))
    yield warned("GPU processes", listed, expected="none: they slow down the measurement", hint=f"sudo kill {pids}")


def _partitions(used: Sequence[Device]) -> Iterator[CheckResult]:
    """Check partitions; settings and targets are for unpartitioned GPUs."""
    if divided := [device.number for device in used if device.mig == "Enabled"]:
        yield failed(
            "MIG", f"on, GPU {_numbers(divided)}", expected="off", hint=f"sudo nvidia-smi -i {_numbers(divided)} -mig 0"
        )
    elif any(device.mig for device in used):
        yield passed("MIG", "off")
    modes = sorted({device.compute_partition for device in used if device.compute_partition})
    if modes and modes != ["SPX"]:
        hint = "sudo amd-smi set --gpu all --compute-partition SPX"
        yield failed("Compute partition", ", ".join(modes), expected="SPX: one device for each GPU", hint=hint)
    memories = sorted({device.memory_partition for device in used if device.memory_partition})
    if memories and memories != ["NPS1"]:
        hint = "sudo amd-smi set --gpu all --memory-partition NPS1"
        yield warned("Memory partition", ", ".join(memories), expected="NPS1, which the settings require", hint=hint)
    if modes == ["SPX"] and memories == ["NPS1"]:
        yield passed("GPU partitions", "SPX, NPS1")


def _fabric(found: Devices, used: Sequence[Device], *, in_container: bool) -> Iterator[CheckResult]:
    """CUDA fails with error 802 on GPUs behind NVSwitches until the fabric manager has initialized them."""
    name = "NVLink fabric"
    states = {device.number: device.fabric for device in used if device.fabric}
    waiting = {number: state for number, state in states.items() if state != _COMPLETED}
    if waiting:
        listed = "; ".join(f"GPU {number}: {state}" for number, state in waiting.items())
        yield failed(name, listed, expected=_COMPLETED, hint=_START_FABRIC_MANAGER)
    elif states:
        yield passed(name, _COMPLETED)
    elif found.nvswitches and found.fabric_manager:
        yield passed(name, f"{found.nvswitches} NVSwitches, fabric manager runs")
    elif found.nvswitches and in_container:
        yield not_checked(name, "the processes of the host are not visible in a container")
    elif found.nvswitches:
        yield failed(
            name,
            f"{found.nvswitches} NVSwitches, and no process nv-fabricmanager",
            expected="a running fabric manager of the driver's version",
            hint=_START_FABRIC_MANAGER,
        )


def _numbers(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _gib(mib: float) -> str:
    return f"{mib / _GIB_MIB:.1f} GiB"


def check_nvidia_driver(found: Devices, cuda: tuple[int, int]) -> CheckResult:
    """Check that the driver supports CUDA version `cuda`, (major, minor)."""
    name = "GPU driver"
    if not found.driver:
        return not_checked(name, "nvidia-smi and /sys/module/nvidia report no version")
    minimum, built = minimum_driver(cuda), ".".join(map(str, cuda))
    if is_older(found.driver, minimum):
        return failed(
            name,
            found.driver,
            expected=f"{minimum} or newer, which CUDA {built} requires",
            hint="install a newer data center driver; containers require only the driver of CUDA 12",
        )
    return passed(name, f"{found.driver}, CUDA {built}")


def installed_cuda(packages: Mapping[str, str]) -> tuple[int, int]:
    """CUDA version of PyTorch, from a version such as `2.13.0+cu129`; without a tag, that of the layer `cuda`.

    Args:
        packages: installed versions by name, from `fingerprint.versions`.
    """
    tag = re.search(r"\+cu(\d+)(\d)$", packages.get("torch", ""))
    return (int(tag[1]), int(tag[2])) if tag else LAYER_CUDA
