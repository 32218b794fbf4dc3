"""Rules on files as such: what a repository takes, and what was left to fill in."""

import re
from collections.abc import Iterator
from pathlib import Path

from harness_llm.checker.findings import Fault, Rule, advised, forbidden, rule
from harness_llm.checker.submission_tree import DIVISIONS, Result, System, Tree
from harness_llm.loadgen.logs import SUMMARY

_MB = 1024 * 1024
_PLACEHOLDER = re.compile(r"\b(?:TODO|TBD|FIXME|placeholder)\b", re.IGNORECASE)
_UNFILLED = re.compile(
    rf'{_PLACEHOLDER.pattern}|"<[^>]*>"', re.IGNORECASE
)  # of JSON; a README may tell what to fill in
# A script beside the official checker, marked as deprecated there; published trees of NVIDIA and others fail it.
_REPOSITORY = advised("tools/submission/repository_checks.sh")
_STRUCTURE = advised("tools/submission/submission_structure.md")


def _entries(tree: Tree) -> Iterator[Path]:
    """Everything that would be submitted; what is beside the divisions would not."""
    for division in DIVISIONS:
        if (tree.path / division).is_dir():
            yield from sorted((tree.path / division).rglob("*"))


@rule("file-name", _REPOSITORY, hint="rename it")
def file_name(tree: Tree) -> Iterator[Fault]:
    """A name holds a space or begins with a dot."""
    for path in _entries(tree):
        if " " in path.name or path.name.startswith("."):
            yield Fault(path, "a name without spaces and leading dot", path.name)


@rule("symlink", _REPOSITORY, hint="copy the file")
def symlink(tree: Tree) -> Iterator[Fault]:
    """A file is a symbolic link."""
    for path in _entries(tree):
        if path.is_symlink():
            yield Fault(path, "a file", f"a link to {path.readlink()}")


@rule("file-size", _REPOSITORY, hint="keep it outside the tree; GitHub refuses files of more than 100 MB")
def file_size(tree: Tree) -> Iterator[Fault]:
    """A file is too large."""
    most = tree.round.max_file_mb
    for path in _entries(tree):
        if path.is_file() and path.stat().st_size > most * _MB:
            yield Fault(path, f"at most {most} MB", f"{path.stat().st_size / _MB:.1f} MB")


@rule("summary", forbidden("policies/submission_rules.adoc:420-422"), hint="take it from the run's directory")
def summary(result: Result) -> Iterator[Fault]:
    """A log's summary is missing."""
    for log in (result.performance, result.accuracy):
        path = log.path.with_name(SUMMARY)
        if log.path.is_file() and not path.is_file():
            yield Fault(path, "a file", "none")


@rule("placeholder", _STRUCTURE, hint="fill it in")
def system_placeholder(system: System) -> Iterator[Fault]:
    """A text still holds a placeholder."""
    yield from _placeholders(system.description_path)


@rule("placeholder", _STRUCTURE, hint="fill it in")
def result_placeholder(result: Result) -> Iterator[Fault]:
    """A text still holds a placeholder."""
    yield from _placeholders(result.measurements)
    yield from _placeholders(result.measurements.with_name("README.md"))


def _placeholders(path: Path) -> Iterator[Fault]:
    pattern = _UNFILLED if path.suffix == ".json" else _PLACEHOLDER
    if path.is_file():
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
            if match := pattern.search(line):
                yield Fault(path.with_name(f"{path.name}:{number}"), "the text itself", match[0])


TREE: tuple[Rule[Tree], ...] = (file_name, symlink, file_size)
SYSTEM: tuple[Rule[System], ...] = (system_placeholder,)
RESULT: tuple[Rule[Result], ...] = (summary, result_placeholder)
