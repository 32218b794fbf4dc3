"""Read text and YAML files; replace files and folders atomically; write reproducible archives."""

import gzip
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import yaml

from harness_llm.errors import ConfigError

READABLE = 0o044
OTHERS_WRITE = 0o022
_OLDEST = 315532800  # 1980-01-01, the oldest date that every archive format can store
# The loader of libyaml is ten times as fast; PyYAML may be built without it.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(file: Path) -> Any:
    """The content of the YAML file `file`; raises as `parse_yaml`."""
    return parse_yaml(read_text(file), str(file))


def read_text(file: Path) -> str:
    """The text in `file`.

    Raises:
        ConfigError: the file is not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError("a file is not UTF-8", where=str(file), found=str(error)) from error


def parse_yaml(text: str, where: str) -> Any:
    """The content of `text`.

    Args:
        where: the place of the text, for the error message.

    Raises:
        ConfigError: invalid YAML.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - both loaders are safe
    except yaml.YAMLError as error:
        raise ConfigError("invalid YAML", where=where, found=" ".join(str(error).split())) from error


@contextmanager
def only_own_writes() -> Iterator[None]:
    """Create files and folders that other accounts cannot write, whatever the user's umask."""
    before = os.umask(0)
    os.umask(before | OTHERS_WRITE)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def write_atomically(file: Path) -> Iterator[Path]:
    """Yield a temporary path beside `file` that replaces `file` when the block ends without an exception.

    Raises:
        ConfigError: `file` is a folder.
    """
    if file.is_dir():
        raise ConfigError("a folder, not a file", where=str(file), hint=f"name a file, such as {file / 'NAME'}")
    temporary = file.with_name(f"{file.name}.tmp-{os.getpid()}")
    try:
        yield temporary
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing(output: Path) -> Iterator[Path]:
    """Yield an empty folder beside `output` that replaces the folder `output` when the block ends without an exception.

    The old folder is kept until the new one has its name: the next call undoes an interrupted replacement.
    """
    temporary, old = (output.with_name(f"{output.name}.{end}") for end in ("tmp", "old"))
    _restore(output, temporary, old)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.iterdir():
            file.chmod(file.stat().st_mode | READABLE)  # safetensors writes files that only their owner can read
        if output.exists():
            output.rename(old)
        temporary.rename(output)
    finally:  # after Ctrl-C too
        _restore(output, temporary, old)


def _restore(output: Path, temporary: Path, old: Path) -> None:
    """Remove the remains of a replacement; without a new folder, the old one gets its name back."""
    if old.exists() and not output.exists():
        old.rename(output)
    for remains in (temporary, old):
        shutil.rmtree(remains, ignore_errors=True)


@contextmanager
def reproducible_archive(file: IO[bytes]) -> Iterator[tarfile.TarFile]:
    """Yield a tar archive that is compressed into `file`: equal members in equal order give equal bytes.

    `anonymous` prepares a member.
    """
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=_OLDEST, compresslevel=6) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        yield tar


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove owner, time and permissions of an archive's member, except that a file is executable."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = _OLDEST
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member
