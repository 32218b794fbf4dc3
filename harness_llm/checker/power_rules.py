"""Rules on the files of a power measurement."""

from collections.abc import Iterator
from pathlib import Path

from harness_llm.checker.findings import Rule, Violation, rejected, rule
from harness_llm.checker.submission_tree import Result


def has_power(result: Result) -> bool:
    """Whether the official checker treats the result as one with a power measurement."""
    return (result.path / "performance" / "power").exists()


@rule("power", rejected("power_check.py:89-116"), hint="remove performance/power if power was not measured")
def power(result: Result) -> Iterator[Violation]:
    """A file of a power measurement is missing or not allowed."""
    folders = result.round.power if has_power(result) else {}
    for name, wanted in folders.items():
        folder = result.path / "performance" / name
        present = _files(folder)
        for file in (file for file in wanted.required if file not in present):
            yield Violation(folder / file, "a file", "none")
        for file in sorted(present - {*wanted.required, *wanted.optional}):
            yield Violation(folder / file, "no such file", "a file", f"remove it, or move it out of {name}")


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()} if folder.is_dir() else set()


RESULT: tuple[Rule[Result], ...] = (power,)
