"""Sources of Python packages for image builds: pip's configuration of the machine, or WHEELHOUSE."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from harness_llm.errors import EnvironmentMissing
from harness_llm.paths import CHECKOUT
from setup.uv import pip_options

WHEELS = "/wheels"  # mount point in setup/Dockerfile
_REQUIREMENTS = CHECKOUT / "setup" / "requirements"
_COPIED = ("index-url", "extra-index-url", "trusted-host", "timeout", "default-timeout", "proxy", "no-index")
_SUFFIXES = (".whl", ".tar.gz", ".zip")


def pins(layers: Sequence[str]) -> dict[str, str]:
    """Return the pinned versions of `layers`, without the base image's packages."""
    files = [_REQUIREMENTS / f"{layer}.txt" for layer in layers]
    lines = [line.split() for file in files if file.is_file() for line in file.read_text().splitlines()]
    pinned = (words[0].partition("==") for words in lines if words and "==" in words[0])
    return {name: version for name, _, version in pinned}


def digest(layers: Sequence[str]) -> str:
    """Return a digest of the pins of `layers`, with those from which the packages on a base image are taken."""
    files = [_REQUIREMENTS / f"{layer.removeprefix('base-')}.txt" for layer in layers]
    pinned = [file.read_text() for file in files if file.is_file()]
    return hashlib.sha256("".join(pinned).encode()).hexdigest()[:12]


@cache
def options() -> dict[str, list[str]]:
    """Return pip's configuration on this machine; empty without pip."""
    for python in ("python3", str(CHECKOUT / "build" / "pip" / "bin" / "python")):
        with_pip = [python, "-m", "pip", "config", "list"]
        done = subprocess.run(with_pip, capture_output=True, text=True, check=False) if shutil.which(python) else None
        if done and not done.returncode:
            return pip_options(done.stdout)
    return {}


def certificate() -> Path | None:
    """Return the CA certificate of pip's configuration, if any."""
    named = options().get("cert", [])
    return Path(named[0]) if named and Path(named[0]).is_file() else None


def write(folder: Path, wheelhouse: str) -> None:
    """Write `pip.conf` and `wheels` into `folder`; a `wheelhouse` is then the only source of packages.

    Raises:
        EnvironmentMissing: no packages in `wheelhouse`.
    """
    configured = options()
    folders = [Path(wheelhouse)] if wheelhouse else [*_local(configured.get("find-links", ()))]
    wheels = [
        file for source in folders if source.is_dir() for file in source.iterdir() if file.name.endswith(_SUFFIXES)
    ]
    if wheelhouse and not wheels:
        raise EnvironmentMissing("no packages in WHEELHOUSE", where=wheelhouse, expected="*.whl")
    _link(wheels, folder / "wheels")
    (folder / "pip.conf").write_text(pip_conf(configured, offline=bool(wheelhouse), wheels=bool(wheels)))
    (folder / "pip.conf").chmod(0o600)


def pip_conf(configured: Mapping[str, Sequence[str]], *, offline: bool, wheels: bool) -> str:
    """Return pip.conf for the build, without sources that are local files of this machine."""
    inside = {"no-index": "1"} if offline else dict(_reachable(configured))
    if wheels:
        inside["find-links"] = WHEELS
    lines = [f"{key} = {value}" for key, value in inside.items()]
    return "\n".join(["[global]", *lines, ""])


def _reachable(configured: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    for option in _COPIED:
        values = [value for value in configured.get(option, ()) if not value.startswith(("file:", "/"))]
        if values:
            yield option, "\n    ".join(values)


def _local(links: Sequence[str]) -> Iterator[Path]:
    """Yield the local folders of find-links."""
    return (Path(link.removeprefix("file://")) for link in links if link.startswith(("/", "file://")))


def _link(wheels: Sequence[Path], folder: Path) -> None:
    """Make `folder`, in the build context, contain exactly `wheels`: hard links, or copies from another disk."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {wheel.name for wheel in wheels}
    for stale in (file for file in folder.iterdir() if file.name not in names):
        stale.unlink()
    for wheel in wheels:
        target = folder / wheel.name
        if target.exists() and target.stat().st_size == wheel.stat().st_size:
            continue
        target.unlink(missing_ok=True)
        try:
            os.link(wheel, target)
        except OSError:
            shutil.copy(wheel, target)
