"""The source of a run, stored beside its logs: the program, the settings of all benchmarks, and LoadGen's targets."""

import functools
import gzip
import io
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from harness_llm.config.benchmark import Benchmark
from harness_llm.errors import ConfigError
from harness_llm.fileio import anonymous, reproducible_archive
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.runs.program_source import JUDGING, MEASURING

STORED = "source.tar.gz"
# The source of the program, and the files of the workspace that it reads.
_PROGRAM = ("harness_llm", "setup", "submission/*.sh", "Makefile", "pyproject.toml", "LICENSE")
_SETTINGS = ("models/*.yaml", "models/*/*.yaml", "models/*/config.json", "code/user_*.conf")
_EXECUTABLE = 0o100


class SourceFile(NamedTuple):
    """A file of the source."""

    content: bytes
    executable: bool = False


Source = Mapping[str, SourceFile]
"""Files by path in the checkout."""


def remember_source(workspace: Workspace) -> None:
    """Read the source at the start of a command: the files may change before and between its runs."""
    source_at_start.cache_clear()
    source_at_start(workspace)
    for part in (MEASURING, JUDGING):
        part.at_start  # noqa: B018 - read once per process


@functools.cache
def source_at_start(workspace: Workspace) -> bytes:
    """The archive of the source at the start of the command."""
    return pack(present_source(workspace))


def present_source(workspace: Workspace) -> Source:
    """The source that a run has now, with the settings of all benchmarks; without caches and hidden files."""
    found: dict[str, SourceFile] = {}
    for root, patterns in ((CHECKOUT, _PROGRAM), (workspace.root, _SETTINGS)):
        for file in _files(root, patterns):
            executable = bool(file.stat().st_mode & _EXECUTABLE)
            found[file.relative_to(root).as_posix()] = SourceFile(file.read_bytes(), executable)
    return found


def source_of(benchmark: Benchmark, source: Source) -> Source:
    """`source` without the settings of other benchmarks."""
    return {name: file for name, file in source.items() if _concerns(PurePosixPath(name), benchmark)}


def _concerns(path: PurePosixPath, benchmark: Benchmark) -> bool:
    models, *folders = path.parts[:-1] or ("",)
    return models != "models" or not folders or folders[0] in (benchmark.name, benchmark.settings)


def _files(root: Path, patterns: Iterable[str]) -> Iterable[Path]:
    for path in (path for pattern in patterns for path in root.glob(pattern)):
        for file in path.rglob("*") if path.is_dir() else (path,):
            if file.is_file() and not any(map(_is_no_source, file.relative_to(root).parts)):
                yield file


def _is_no_source(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__" or name.endswith(".egg-info")


def pack(source: Source) -> bytes:
    """The archive of `source`; equal sources have equal archives."""
    target = io.BytesIO()
    with reproducible_archive(target) as tar:
        for name, (content, executable) in sorted(source.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), _EXECUTABLE if executable else 0
            tar.addfile(anonymous(member), io.BytesIO(content))
    return target.getvalue()


def read_stored(run: Path) -> Source | None:
    """The source in the run directory `run`; None without one, as in runs of earlier versions.

    Raises:
        ConfigError: the archive is damaged, or names files outside a folder.
    """
    file = run / STORED
    if not file.is_file():
        return None
    try:
        return _unpack(file.read_bytes())
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        raise ConfigError("damaged source of a run", where=str(file), found=str(error)) from error


@functools.lru_cache(maxsize=4)
def _unpack(archive: bytes) -> Source:
    """The files in an archive; all runs of a command have the same one."""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive))) as tar:
        return {member.name: _read(tar, member) for member in tar}


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> SourceFile:
    """Read a file of an archive, which may have been changed by others.

    Raises:
        ValueError: it is no file, or outside the folder where the archive is unpacked.
    """
    path, content = PurePosixPath(member.name), tar.extractfile(member) if member.isreg() else None
    if content is None or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{member.name} is no file of a source")
    return SourceFile(content.read(), bool(member.mode & _EXECUTABLE))


def write_source(source: Source, folder: Path) -> None:
    """Write the files of `source` below `folder`."""
    for name, (content, executable) in source.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        if executable:
            file.chmod(file.stat().st_mode | 0o111)


def different_files(source: Source, other: Source) -> list[str]:
    """The files in which two sources differ, also those that only one of them has, by name."""
    return sorted(name for name in source.keys() | other.keys() if source.get(name) != other.get(name))
