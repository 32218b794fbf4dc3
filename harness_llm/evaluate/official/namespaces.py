"""Sandbox of Linux namespaces for machines without a scoring service: no network, only listed paths, read-only.

It limits time, but not memory and processes. The container of MBXP cannot be used: the packages of the accuracy
scripts are installed on this machine, not in an image.
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
# $1: folder for the new root; $2: its /tmp; then the paths to mount, --, and the command.
_SCRIPT = """
set -eu
root=$1 scratch=$2
shift 2
mount_path() {
    if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$root${1%/*}"; : > "$root$1"; fi
    mount --rbind "$1" "$root$1"
}
mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir -p "$root/proc" "$root/tmp" "$root/dev/shm"
mount --bind "$scratch" "$root/tmp"
mount -t tmpfs tmpfs "$root/dev/shm"
while [ "$1" != -- ]; do mount_path "$1"; mount -o remount,bind,ro "$root$1"; shift; done
shift
mount -t proc proc "$root/proc"
for device in null zero urandom; do mount_path "/dev/$device"; done
exec chroot "$root" "$@"
"""


def require_namespaces() -> None:
    """Check that this user may create namespaces.

    Raises:
        EnvironmentMissing: the kernel or a container forbids it, or the program `unshare` is missing.
    """
    try:
        done = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True, check=False)
        error = done.stderr.strip() if done.returncode else ""
    except FileNotFoundError:
        error = "unshare is not installed"
    if error:
        raise EnvironmentMissing(
            "no sandbox for model-generated programs: this user cannot create namespaces",
            expected="unshare --user --net true succeeds",
            found=error,
            hint="make submission ENVIRONMENT=container; "
            "or allow user namespaces: sysctl kernel.unprivileged_userns_clone, "
            "kernel.apparmor_restrict_unprivileged_userns",
        )


def run_in_namespaces(
    command: Sequence[str], paths: Sequence[Path], variables: Mapping[str, str], seconds: float, scratch: Path
) -> Finished:
    """Run a command with access to the system's programs, `paths` (read-only) and an empty /tmp only.

    Args:
        variables: environment of the command.
        scratch: folder with disk space for the output of the command.

    Raises:
        EnvironmentMissing: as `require_namespaces`.
        RunFailed: the command ran longer than `seconds`.
    """
    require_namespaces()
    mounted = [path for path in (*map(Path, _SYSTEM), *paths) if path.exists()]
    with TemporaryDirectory(dir=scratch) as root, TemporaryDirectory(dir=scratch) as tmp:
        inside = with_variables(command, variables)
        return run_sandboxed(
            [*_UNSHARE, "sh", "-c", _SCRIPT, "sh", root, tmp, *_outermost(mounted), "--", *inside], "", seconds
        )


def _outermost(paths: Sequence[Path]) -> list[str]:
    """`paths` without duplicates and without paths inside another one."""
    return [str(path) for path in dict.fromkeys(paths) if not any(path.is_relative_to(p) for p in paths if p != path)]
