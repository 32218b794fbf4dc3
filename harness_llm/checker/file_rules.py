"""Rules on file names, links, sizes, LoadGen summaries and placeholders."""

import re
from collections.abc import Iterator
from pathlib import Path

from harness_llm.checker.findings import Rule, Violation, advised, forbidden, rule
from harness_llm.checker.submission_tree import DIVISIONS, Result, System, Tree
from harness_llm.loadgen.logs import SUMMARY

_MB = 1024 * 1024
_PLACEHOLDER = re.compile(r"\b(?:TODO|TBD|FIXME|placeholder)\b", re.IGNORECASE)
# In JSON files; a README may contain "<...>" in instructions.
_JSON_PLACEHOLDER = re.compile(rf'{_PLACEHOLDER.pattern}|"<[^>]*>"|"[^"]*<\w[\w -]*>[^"]*"', re.IGNORECASE)
# Deprecated script that the official checker does not call; published trees of NVIDIA and others fail it.
_REPOSITORY = advised("tools/submission/repository_checks.sh")
_STRUCTURE = advised("tools/submission/submission_structure.md")


def _entries(tree: Tree) -> Iterator[Path]:
    """Yield all files and folders of the divisions; other folders are not submitted."""
    for division in DIVISIONS:
        if (tree.path / division).is_dir():
            yield from sorted((tree.path / division).rglob("*"))


@rule("file-name", _REPOSITORY, hint="rename it")
def file_name(tree: Tree) -> Iterator[Violation]:
    """A file or folder name contains a space or begins with a dot."""
    for path in _entries(tree):
        if " " in path.name or path.name.startswith("."):
            yield Violation(path, "a name without spaces and without a leading dot", path.name)


@rule("symlink", _REPOSITORY, hint="replace the link with its target")
def symlink(tree: Tree) -> Iterator[Violation]:
    """A file or folder is a symbolic link."""
    for path in _entries(tree):
        if path.is_symlink():
            yield Violation(path, "a file or folder", f"a symbolic link to {path.readlink()}")


@rule("file-size", _REPOSITORY, hint="store it outside the tree; repository_checks.sh lists files above 50 MB")
def file_size(tree: Tree) -> Iterator[Violation]:
    """A file exceeds the size limit."""
    limit_mb = tree.round.max_file_mb
    for path in _entries(tree):
        if path.is_file() and path.stat().st_size > limit_mb * _MB:
            yield Violation(path, f"at most {limit_mb} MB", f"{path.stat().st_size / _MB:.1f} MB")


@rule("summary", forbidden("policies/submission_rules.adoc:420-422"), hint="copy it from the run's directory")
def summary(result: Result) -> Iterator[Violation]:
    """mlperf_log_summary.txt is missing."""
    for log in (result.performance, result.accuracy):
        path = log.path.with_name(SUMMARY)
        if log.path.is_file() and not path.is_file():
            yield Violation(path, f"{SUMMARY} beside {log.path.name}", "no such file")


@rule("placeholder", _STRUCTURE, hint="replace it")
def system_placeholder(system: System) -> Iterator[Violation]:
    """The system description contains a placeholder."""
    yield from _placeholders(system.description_path)


@rule("placeholder", _STRUCTURE, hint="replace it")
def result_placeholder(result: Result) -> Iterator[Violation]:
    """The measurements file or its README.md contains a placeholder."""
    yield from _placeholders(result.measurements)
    yield from _placeholders(result.measurements.with_name("README.md"))


def _placeholders(path: Path) -> Iterator[Violation]:
    pattern = _JSON_PLACEHOLDER if path.suffix == ".json" else _PLACEHOLDER
    if path.is_file():
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
            if match := pattern.search(line):
                yield Violation(path.with_name(f"{path.name}:{number}"), "the actual text", match[0])


TREE: tuple[Rule[Tree], ...] = (file_name, symlink, file_size)
SYSTEM: tuple[Rule[System], ...] = (system_placeholder,)
RESULT: tuple[Rule[Result], ...] = (summary, result_placeholder)
