"""CPU time that the cgroups of this process allow: limits of Kubernetes pods, Slurm jobs and `docker run --cpus`."""

from collections.abc import Iterator
from pathlib import Path

from harness_llm.hardware.sysfs import read

_GROUPS = "sys/fs/cgroup"


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the number of CPUs whose time the process may use; None without a limit.

    The process may run on more CPUs, but the kernel stops all its threads when the time of a period is used up
    (Documentation/admin-guide/cgroup-v2.rst, cpu.max).

    Args:
        root: folder that contains proc/ and sys/.
    """
    limits = (_limit(folder) for folder in _folders(root))
    return min((limit for limit in limits if limit is not None), default=None)


def _folders(root: Path) -> Iterator[Path]:
    """Yield the folders of the process's cgroup and of those above it; v1 has one hierarchy per controller."""
    for line in read(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number != "0" and "cpu" not in controllers.split(","):
            continue
        top = root / _GROUPS / ("" if number == "0" else "cpu")
        own = top / path.lstrip("/")
        yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(top))


def _limit(group: Path) -> float | None:
    quota, _, period = read(group / "cpu.max").partition(" ")
    if not quota:
        quota, period = read(group / "cpu.cfs_quota_us"), read(group / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None
