"""Bind mounts of a container: their sources, and checks of existence and permission."""

import errno
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness_llm.containers.arguments import Container, Mount
from harness_llm.containers.certificates import INSIDE, bundle_file, extra_certificate, write_bundle
from harness_llm.containers.container_spec import Accelerator
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.hardware.device_lock import LOCKS, make_locks
from harness_llm.hardware.machine import HOST_OS_RELEASE
from harness_llm.paths import CHECKOUT, DATA_VARIABLE, MODELS_VARIABLE, SCRATCH_VARIABLE, Workspace
from harness_llm.write_access import PREFIX, Place, access_errors, write_error

_OS_RELEASE = Path("/etc/os-release")
_LAB = Path("/data/inference")
_ERRORS = {os.strerror(number): number for number in errno.errorcode}


def folders(accelerator: Accelerator, environ: Mapping[str, str]) -> Iterator[Mount]:
    """Yield the mounts; folders of the checkout, of models and of data need not exist yet.

    Raises:
        ConfigError: invalid EXTRA_CA_CERT, or missing path of another variable.
    """
    workspace, inside = Workspace(CHECKOUT), accelerator.mounts
    yield Mount(workspace.root, inside.checkout)
    yield Mount(_large(MODELS_VARIABLE, "model", workspace.build / "models", environ), inside.models)
    yield Mount(_large(DATA_VARIABLE, "data", workspace.build / "data", environ), inside.data)
    yield Mount(LOCKS, inside.locks)
    if _OS_RELEASE.exists():
        yield Mount(_OS_RELEASE, str(HOST_OS_RELEASE), writable=False)
    if extra_certificate(environ):
        yield Mount(bundle_file(workspace), INSIDE, writable=False)
    for path in named_paths(accelerator, environ).values():
        yield Mount(path, str(path), writable=False)


def named_paths(accelerator: Accelerator, environ: Mapping[str, str]) -> dict[str, Path]:
    """Return the paths of the accelerator's path variables that are set; they are the same in the container.

    Raises:
        ConfigError: missing path.
    """
    paths = {name: Path(environ[name]).resolve() for name in accelerator.paths if environ.get(name)}
    for name, path in paths.items():
        if not path.exists():
            raise ConfigError(f"no file or folder of {name}", where=str(path), hint=f"correct or unset {name}")
    return paths


def _large(variable: str, name: str, local: Path, environ: Mapping[str, str]) -> Path:
    """Return the folder of models or data: `variable`, else scratch space, else /data/inference, else build/."""
    if named := environ.get(variable):
        return Path(named).resolve()
    if scratch := environ.get(SCRATCH_VARIABLE):
        return (Path(scratch) / local.name).resolve()
    usual = _LAB / name
    return usual if usual.is_dir() else local


def prepare(started: Container, accelerator: Accelerator, environ: Mapping[str, str]) -> None:
    """Create the folders of build/ and check all mounts and devices.

    Raises:
        EnvironmentMissing: missing folder, missing write permission, or missing device file.
    """
    workspace = Workspace(CHECKOUT)
    make_locks()
    if certificate := extra_certificate(environ):
        write_bundle(certificate, bundle_file(workspace))
    uid, gid = map(int, started.user.split(":"))
    for folder in _made():
        _make(folder, uid, gid)
    for fault in faults(started, accelerator):
        raise fault
    if missing := [device for device in accelerator.devices if not Path(device).exists()]:
        raise EnvironmentMissing(
            "missing device files of the accelerator",
            where=", ".join(missing),
            hint="install and load the vendor's driver; GPU_NAME=cpu ignores accelerators",
        )


def faults(started: Container, accelerator: Accelerator) -> Iterator[EnvironmentMissing]:
    """Yield the errors of mounts; `prepare` creates missing folders below build/."""
    workspace = Workspace(CHECKOUT)
    mounts = (*started.mounts, *_written(accelerator))
    missing = [m for m in mounts if not m.source.exists() and not _is_made(m.source, workspace)]
    yield from map(_missing, missing)
    places = [Place(m.source, _variable(m)) for m in mounts if m.writable and m not in missing]
    uid, gid = map(int, started.user.split(":"))
    for error in access_errors(places, f"{uid}:{gid}", lambda folder: _write_error(folder, started)):
        yield replace(error, what="no write access of the container's user", expected=f"access of {uid}:{gid}")


def _written(accelerator: Accelerator) -> Iterator[Mount]:
    """Yield the folders of the mounted checkout that the container writes."""
    workspace = Workspace(CHECKOUT)
    of_runs = (workspace.logs, workspace.scoring, workspace.official)
    for folder in (workspace.build, workspace.cache, workspace.stage_logs, *of_runs, workspace.submission):
        yield Mount(folder, f"{accelerator.mounts.checkout}/{folder.relative_to(workspace.root)}")


def owning_groups(mounts: Sequence[Mount], accelerator: Accelerator, uid: int) -> set[int]:
    """Return the groups of the current user, except root's, that own a mounted folder; none for another `uid`.

    Docker gives the user in the container no supplementary groups.
    """
    if uid != os.getuid():
        return set()
    sources = [mount.source for mount in (*mounts, *_written(accelerator))]
    return {source.stat().st_gid for source in sources if source.exists()} & {*os.getgroups()} - {0}


def _is_made(path: Path, workspace: Workspace) -> bool:
    return path == LOCKS or path.is_relative_to(workspace.build)


def _made() -> tuple[Path, ...]:
    """Return the folders that `prepare` makes."""
    workspace = Workspace(CHECKOUT)
    return (workspace.build, workspace.cache, workspace.build / "models", workspace.build / "data")


def _make(folder: Path, uid: int, gid: int) -> None:
    """Create a folder of the checkout that the container writes; a folder of root is given to `uid`."""
    folder.mkdir(parents=True, exist_ok=True)
    if _is_given(folder):
        os.chown(folder, uid, gid)


def _is_given(folder: Path) -> bool:
    return os.getuid() == 0 and folder.stat().st_uid == 0


def _missing(mount: Mount) -> EnvironmentMissing:
    variable, make = _variable(mount), f"mkdir -p {shlex.quote(str(mount.source))}"
    return EnvironmentMissing(
        f"missing folder for {mount.target} in the container",
        where=str(mount.source),
        hint=f"{make}, or set {variable} to another folder" if variable else make,
    )


def _variable(mount: Mount) -> str:
    return {"/model": MODELS_VARIABLE, "/data": DATA_VARIABLE}.get(mount.target, "")


def _write_error(folder: Path, started: Container) -> OSError | None:
    """Return the error of creating a file as the container's user; None if it succeeds."""
    uid, gid = map(int, started.user.split(":"))
    if uid == os.getuid() or (folder in _made() and _is_given(folder)):
        return write_error(folder)
    try:
        done = subprocess.run(
            ["mktemp", f"./{PREFIX}XXXXXXXX"],
            cwd=folder,  # as with a mount, the user needs no access to the parent folders
            user=uid,
            group=gid,
            extra_groups=started.groups,
            env={"PATH": os.defpath, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        return error
    if done.returncode:
        cause = done.stderr.strip().rpartition(": ")[2]
        return OSError(_ERRORS.get(cause, 0), cause)
    Path(folder, done.stdout.rstrip("\n")).unlink()
    return None
