"""The folders of the machine that a container shows: where they are, and what must be true of them."""

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness_llm.containers.arguments import Container, Mount
from harness_llm.containers.certificates import INSIDE, bundle_file, extra_certificate, write_bundle
from harness_llm.containers.container_spec import Accelerator
from harness_llm.errors import EnvironmentMissing
from harness_llm.hardware.device_lock import LOCKS, make_locks
from harness_llm.paths import CHECKOUT, DATA_VARIABLE, MODELS_VARIABLE, SCRATCH_VARIABLE, Workspace

_LAB = Path("/data/inference")
_WRITE_AND_ENTER = 0o3


def folders(accelerator: Accelerator, environ: Mapping[str, str]) -> Iterator[Mount]:
    """What is mounted, whether it is there or not."""
    workspace, inside = Workspace(CHECKOUT), accelerator.mounts
    yield Mount(workspace.root, inside.checkout)
    yield Mount(_large(MODELS_VARIABLE, "model", workspace.build / "models", environ), inside.models)
    yield Mount(_large(DATA_VARIABLE, "data", workspace.build / "data", environ), inside.data)
    yield Mount(LOCKS, inside.locks)
    if extra_certificate(environ):
        yield Mount(bundle_file(workspace), INSIDE, writable=False)


def _large(variable: str, name: str, local: Path, environ: Mapping[str, str]) -> Path:
    """Where models or data lie: as `variable` says, or the scratch space, or where labs have them, or the checkout."""
    if named := environ.get(variable):
        return Path(named).resolve()
    if scratch := environ.get(SCRATCH_VARIABLE):
        return (Path(scratch) / local.name).resolve()
    usual = _LAB / name
    return usual if usual.is_dir() else local


def prepare(started: Container, accelerator: Accelerator, environ: Mapping[str, str]) -> None:
    """Make what a container needs on the machine, and see that the rest is there.

    Raises:
        EnvironmentMissing: a folder is not there or may not be written, or a device file is not there.
    """
    workspace = Workspace(CHECKOUT)
    make_locks()
    if certificate := extra_certificate(environ):
        write_bundle(certificate, bundle_file(workspace))
    uid, gid = map(int, started.user.split(":"))
    for folder in (workspace.build, workspace.cache, workspace.build / "models", workspace.build / "data"):
        _make(folder, uid, gid)
    for fault in faults(started, accelerator):
        raise fault


def faults(started: Container, accelerator: Accelerator) -> Iterator[EnvironmentMissing]:
    """What `started` lacks on the machine; folders below build/ that are not there yet are made by `prepare`."""
    workspace = Workspace(CHECKOUT)
    uid, gid = map(int, started.user.split(":"))
    own = (workspace.build, workspace.cache, workspace.submission)
    inside = (Mount(f, f"{accelerator.mounts.checkout}/{f.relative_to(workspace.root)}") for f in own)
    for mount in (*started.mounts, *inside):
        if mount.source.exists() or not _is_made(mount.source, workspace):
            yield from _faults(mount, uid, gid)
    for device in accelerator.devices:
        if not Path(device).exists():
            yield EnvironmentMissing(
                "the devices of this accelerator are not there",
                where=device,
                hint="install the vendor's driver and load it; GPU_NAME=cpu leaves accelerators alone",
            )


def _is_made(path: Path, workspace: Workspace) -> bool:
    return path == LOCKS or path.is_relative_to(workspace.build)


def _make(folder: Path, uid: int, gid: int) -> None:
    """A folder of the checkout that is written inside; what root made, for `uid`, it gives away."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.getuid() == 0 and folder.stat().st_uid == 0:
        os.chown(folder, uid, gid)


def _faults(mount: Mount, uid: int, gid: int) -> Iterator[EnvironmentMissing]:
    if not mount.source.exists():
        yield EnvironmentMissing(
            f"what is to be mounted at {mount.target} is not there",
            where=str(mount.source),
            hint=f"mkdir -p {shlex.quote(str(mount.source))}{_named_by(mount)}",
        )
    elif mount.writable and not _may_write(mount.source, uid, gid):
        yield EnvironmentMissing(
            f"what stands at {mount.target} may not be written by the user inside",
            where=str(mount.source),
            expected=f"a folder that {uid}:{gid} may write",
            hint=f"chown -R {uid}:{gid} {shlex.quote(str(mount.source))}{_named_by(mount)}",
        )


def _named_by(mount: Mount) -> str:
    variable = {"/model": MODELS_VARIABLE, "/data": DATA_VARIABLE}.get(mount.target)
    return f", or name another with {variable}" if variable else ""


def _may_write(folder: Path, uid: int, gid: int) -> bool:
    """For ourselves the kernel says it; for others the mode does, as far as it goes."""
    if uid == os.getuid():
        return os.access(folder, os.W_OK | os.X_OK)
    found = folder.stat()
    shift = 6 if found.st_uid == uid else 3 if found.st_gid == gid else 0
    return (found.st_mode >> shift) & _WRITE_AND_ENTER == _WRITE_AND_ENTER
