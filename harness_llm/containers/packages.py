"""Where a build has its Python packages from: as the machine has them, by pip's configuration, or from WHEELHOUSE."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from harness_llm.errors import EnvironmentMissing
from harness_llm.paths import CHECKOUT
from setup.uv import pip_options

WHEELS = "/wheels"  # where setup/Dockerfile shows the folder
_REQUIREMENTS = CHECKOUT / "setup" / "requirements"
_HANDED_ON = ("index-url", "extra-index-url", "trusted-host", "timeout", "default-timeout", "proxy", "no-index")
_SUFFIXES = (".whl", ".tar.gz", ".zip")


def pins(layers: Sequence[str]) -> dict[str, str]:
    """The versions that the requirements of `layers` pin; a base image's own packages are not known."""
    files = [_REQUIREMENTS / f"{layer}.txt" for layer in layers]
    lines = [line.split() for file in files if file.is_file() for line in file.read_text().splitlines()]
    pinned = (words[0].partition("==") for words in lines if words and "==" in words[0])
    return {name: version for name, _, version in pinned}


@cache
def options() -> dict[str, list[str]]:
    """pip's configuration on this machine; none where there is no pip."""
    for python in ("python3", str(CHECKOUT / "build" / "pip" / "bin" / "python")):
        with_pip = [python, "-m", "pip", "config", "list"]
        done = subprocess.run(with_pip, capture_output=True, text=True, check=False) if shutil.which(python) else None
        if done and not done.returncode:
            return pip_options(done.stdout)
    return {}


def certificate() -> Path | None:
    """What pip trusts on this machine besides what is public."""
    named = options().get("cert", [])
    return Path(named[0]) if named and Path(named[0]).is_file() else None


def write(folder: Path, wheelhouse: str) -> None:
    """Put `pip.conf` and `wheels` into `folder`: with `wheelhouse` nothing else is asked for packages.

    Raises:
        EnvironmentMissing: `wheelhouse` has no packages.
    """
    configured = options()
    folders = [Path(wheelhouse)] if wheelhouse else [*_local(configured.get("find-links", ()))]
    wheels = [
        file for source in folders if source.is_dir() for file in source.iterdir() if file.name.endswith(_SUFFIXES)
    ]
    if wheelhouse and not wheels:
        raise EnvironmentMissing("there are no packages in WHEELHOUSE", where=wheelhouse, expected="*.whl")
    _show(wheels, folder / "wheels")
    (folder / "pip.conf").write_text(pip_conf(configured, offline=bool(wheelhouse), wheels=bool(wheels)))
    (folder / "pip.conf").chmod(0o600)


def pip_conf(configured: Mapping[str, Sequence[str]], *, offline: bool, wheels: bool) -> str:
    """pip's configuration inside; places that are files of this machine are not there."""
    inside = {"no-index": "1"} if offline else dict(_reachable(configured))
    if wheels:
        inside["find-links"] = WHEELS
    lines = [f"{key} = {value}" for key, value in inside.items()]
    return "\n".join(["[global]", *lines, ""])


def _reachable(configured: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    for option in _HANDED_ON:
        values = [value for value in configured.get(option, ()) if not value.startswith(("file:", "/"))]
        if values:
            yield option, "\n    ".join(values)


def _local(links: Sequence[str]) -> Iterator[Path]:
    """The folders among the places of find-links."""
    return (Path(link.removeprefix("file://")) for link in links if link.startswith(("/", "file://")))


def _show(wheels: Sequence[Path], folder: Path) -> None:
    """Exactly `wheels` in `folder`, which the build's context has: as links, or copies from another disk."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {wheel.name for wheel in wheels}
    for stale in (file for file in folder.iterdir() if file.name not in names):
        stale.unlink()
    for wheel in wheels:
        shown = folder / wheel.name
        if shown.exists() and shown.stat().st_size == wheel.stat().st_size:
            continue
        shown.unlink(missing_ok=True)
        try:
            os.link(wheel, shown)
        except OSError:
            shutil.copy(wheel, shown)
