"""Checks of host settings, temporary folder, shared memory and process limits."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness_llm.errors import HarnessError
from harness_llm.hardware.cgroups import cpu_quota
from harness_llm.hardware.host_settings import HostSettings, recommendations, unread
from harness_llm.hardware.sysfs import read
from harness_llm.pipeline.doctor.check_result import CheckResult, failed, from_error, not_checked, passed, warned
from harness_llm.replicas.pool_folder import require_short_root

_GIB = 2**30
_LEAST_SHARED = 1 * _GIB
"""Docker's default is 64 MiB. vLLM workers communicate through rings of 10 x 24 MiB (shm_broadcast.py of 0.30.0)."""
_SHARED = 32 * _GIB
"""Size in containers (setup/containers.yaml)."""
_UNLIMITED = "unlimited"
_OPEN_FILES = 65535
"""Limit that vLLM sets (set_ulimit in vllm/utils/system_utils.py of 0.30.0)."""
_PROCESSES = 16384
"""Estimate of the threads of LoadGen, eight replicas and their compilers; usual limits are 4,096 or above 100,000."""


@dataclass(frozen=True)
class Limits:
    """Limits of this process.

    Attributes:
        shared_bytes: size of /dev/shm; None if it cannot be read.
        soft: soft limits by the names in /proc/self/limits.
        cpus: number of CPUs on which the process may run.
        cpu_quota: number of CPUs whose time it may use; None for all.
    """

    shared_bytes: int | None = None
    soft: Mapping[str, str] = field(default_factory=dict)
    cpus: int = 0
    cpu_quota: float | None = None


def read_limits(root: Path = Path("/")) -> Limits:
    """Read the limits of this process; `root` is the parent folder of /proc and /dev."""
    rows = re.findall(r"^(Max [a-z ]+?) {2,}(\S+)", read(root / "proc/self/limits"), re.MULTILINE)
    try:
        found = os.statvfs(root / "dev/shm")
        shared = found.f_blocks * found.f_frsize
    except OSError:
        shared = None
    return Limits(shared, dict(rows), len(os.sched_getaffinity(0)), cpu_quota(root))


def check_limits(found: Limits, group: int) -> Iterator[CheckResult]:
    """Check the limits that engines on GPUs require.

    Args:
        group: number of devices per replica; a replica with one device uses no shared memory.
    """
    if group > 1:
        yield _shared_memory(found.shared_bytes)
    for name, least, option in (
        ("Max locked memory", None, "ulimit -l unlimited"),
        ("Max open files", _OPEN_FILES, f"ulimit -n {_OPEN_FILES}"),
        ("Max processes", _PROCESSES, f"ulimit -u {_PROCESSES}"),
    ):
        yield _limit(name, found.soft.get(name, ""), least, option)
    yield _cpu_time(found)


def _cpu_time(found: Limits) -> CheckResult:
    name = "CPU time"
    if found.cpu_quota is None or found.cpu_quota >= found.cpus:
        return passed(name, "not limited")
    return warned(
        name,
        f"that of {found.cpu_quota:g} CPUs, on {found.cpus}",
        expected="no limit: the kernel stops all threads whenever it is used up (cpu.max of the cgroup)",
        hint="Kubernetes: no CPU limit, or whole CPUs with the static CPU manager policy; Docker: no --cpus",
    )


def _shared_memory(size: int | None) -> CheckResult:
    name = "Shared memory"
    hint = "sudo mount -o remount,size=32G /dev/shm; Docker: --shm-size 32g; Kubernetes: emptyDir, medium: Memory"
    if size is None:
        return not_checked(name, "its size cannot be read")
    found = f"{size / _GIB:.1f} GiB at /dev/shm"
    if size < _LEAST_SHARED:
        return failed(name, found, expected=f"at least {_LEAST_SHARED // _GIB} GiB", hint=hint)
    if size < _SHARED:
        return warned(name, found, expected=f"{_SHARED // _GIB} GiB", hint=hint)
    return passed(name, found)


def _limit(name: str, soft: str, least: int | None, option: str) -> CheckResult:
    label = name.removeprefix("Max ").capitalize()
    if not soft:
        return not_checked(label, "/proc/self/limits does not contain it")
    if soft == _UNLIMITED or (least is not None and int(soft) >= least):
        return passed(label, soft)
    found, expected = (f"{soft} bytes", _UNLIMITED) if least is None else (soft, f"{least} or more")
    return warned(label, found, expected=expected, hint=f"{option}; permanently: /etc/security/limits.conf")


def check_temporary_folder() -> Iterator[CheckResult]:
    """Check that sockets of replicas can be created in the temporary folder."""
    try:
        require_short_root()
    except HarnessError as error:
        yield from_error("Temporary folder", error)


def check_host(host: HostSettings, node: str = "") -> Iterator[CheckResult]:
    """Warn of each recommendation for `host`; `node` is its address."""
    found = recommendations(host)
    for setting in found:
        yield warned(setting.name, setting.reason, where=node, hint=f"as root: {setting.command}")
    if missing := unread(host):
        yield not_checked("Host settings", f"this machine does not report {', '.join(missing)}")
    elif not found:
        yield passed("Host settings", "suitable for measurements")
