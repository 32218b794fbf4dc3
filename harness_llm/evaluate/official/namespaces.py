"""A sandbox of Linux namespaces on a machine where no scoring service is: no network, only named paths, read-only.

It limits time, neither memory nor processes, which takes a container. The container engine of MBXP cannot be used, as
the evaluators' packages are on this machine and in no image of their own.
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from harness_llm.errors import EnvironmentMissing
from harness_llm.evaluate.sandbox import Finished, run_sandboxed, with_variables

_UNSHARE = (
    *("unshare", "--user", "--map-root-user", "--net", "--mount", "--ipc", "--pid", "--fork", "--kill-child"),
    *("--propagation", "private", "--"),
)
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
# $1: folder for the new root; $2: its /tmp; then the paths that are shown, --, and the command.
_SCRIPT = """
set -eu
root=$1 scratch=$2
shift 2
show() {
    if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$root${1%/*}"; : > "$root$1"; fi
    mount --rbind "$1" "$root$1"
}
mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir "$root/proc" "$root/tmp" "$root/dev"
mount --bind "$scratch" "$root/tmp"
while [ "$1" != -- ]; do show "$1"; mount -o remount,bind,ro "$root$1"; shift; done
shift
mount -t proc proc "$root/proc"
for device in null zero urandom; do show "/dev/$device"; done
mkdir "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
exec chroot "$root" "$@"
"""


def require_jail() -> None:
    """Check that this user may make namespaces here.

    Raises:
        EnvironmentMissing: the kernel or a container forbids it, or there is no program `unshare`.
    """
    try:
        done = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True, check=False)
        complaint = done.stderr.strip() if done.returncode else ""
    except FileNotFoundError:
        complaint = "unshare is not installed"
    if complaint:
        raise EnvironmentMissing(
            "programs that a model wrote cannot be kept from the network and from secrets of this machine",
            expected="namespaces of this user (unshare --user --net true)",
            found=complaint,
            hint="make submission ENVIRONMENT=container; "
            "or let users make namespaces: sysctl kernel.unprivileged_userns_clone, "
            "kernel.apparmor_restrict_unprivileged_userns",
        )


def run_jailed(
    command: Sequence[str], paths: Sequence[Path], variables: Mapping[str, str], seconds: float, scratch: Path
) -> Finished:
    """Run a command that sees the operating system's programs and `paths` at their places, and an empty /tmp.

    Args:
        variables: its environment.
        scratch: a folder on a disk with room for what the command writes.

    Raises:
        EnvironmentMissing: as `require_jail`.
        RunFailed: it ran longer than `seconds`.
    """
    require_jail()
    shown = [path for path in (*map(Path, _SYSTEM), *paths) if path.exists()]
    with TemporaryDirectory(dir=scratch) as root, TemporaryDirectory(dir=scratch) as tmp:
        inside = with_variables(command, variables)
        return run_sandboxed(
            [*_UNSHARE, "sh", "-c", _SCRIPT, "sh", root, tmp, *_distinct(shown), "--", *inside], "", seconds
        )


def _distinct(paths: Sequence[Path]) -> list[str]:
    """Paths without those below another one of them."""
    return [str(path) for path in dict.fromkeys(paths) if not any(path.is_relative_to(p) for p in paths if p != path)]
