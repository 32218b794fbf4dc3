"""Rules, and what they find.

A rule is a function that yields the faults of one subject (the tree, a system, a result, a log); what it says
is the first line of its docstring.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from harness_llm.errors import ConfigError

S = TypeVar("S")


class Severity(StrEnum):
    """An error breaks a rule or the official checker, a warning is advice.

    What a tree of small runs cannot meet for its size is `scale` there.
    """

    ERROR = "error"
    WARNING = "warning"
    SCALE = "scale"


@dataclass(frozen=True)
class Finding:
    """One place where a tree departs from a rule.

    Attributes:
        rule: the name of the rule, for example `seeds`.
        clause: where MLCommons says so; a file of its submission checker, or of inference_policies.
        severity: errors decide the exit code.
        what: one sentence that names the fault.
        path: relative to the tree.
        expected: what would have been right.
        found: what stands there.
        hint: what to do about it.
        scale: whether it is a matter of size or duration alone.
    """

    rule: str
    clause: str
    severity: Severity
    what: str
    path: str
    expected: str
    found: str
    hint: str
    scale: bool = False


class Fault(NamedTuple):
    """What a rule yields; `hint` and `severity` replace the rule's own."""

    path: Path
    expected: str = ""
    found: str = ""
    hint: str | None = None
    severity: Severity | None = None


@dataclass(frozen=True)
class Rule(Generic[S]):
    """One named rule over subjects of one kind."""

    id: str
    clause: str
    severity: Severity
    what: str
    hint: str
    scale: bool
    faults: Callable[[S], Iterable[Fault]]

    def findings(self, subject: S, tree: Path) -> Iterator[Finding]:
        """Apply the rule; what it cannot read is a finding too."""
        try:
            for fault in self.faults(subject):
                yield self._finding(fault, tree)
        except ConfigError as error:
            fault = Fault(Path(error.where), error.expected, error.found or error.what, error.hint)
            yield replace(self._finding(fault, tree), what=error.what, scale=False)

    def _finding(self, fault: Fault, tree: Path) -> Finding:
        return Finding(
            rule=self.id,
            clause=self.clause,
            severity=fault.severity or self.severity,
            what=self.what,
            path=str(fault.path.relative_to(tree)),
            expected=fault.expected,
            found=fault.found,
            hint=self.hint if fault.hint is None else fault.hint,
            scale=self.scale,
        )


def rule(
    id: str,  # noqa: A002 (the word of the finding's readers)
    clause: str,
    *,
    hint: str = "",
    severity: Severity = Severity.ERROR,
    scale: bool = False,
) -> Callable[[Callable[[S], Iterable[Fault]]], Rule[S]]:
    """Name the function below as a rule; `scale` marks what small runs cannot meet."""

    def named(faults: Callable[[S], Iterable[Fault]]) -> Rule[S]:
        what = (faults.__doc__ or "").strip().splitlines()[0].rstrip(".")
        return Rule(id, clause, severity, what, hint, scale, faults)

    return named


def exit_code(findings: Iterable[Finding]) -> int:
    """1 if there is an error among the findings, else 0."""
    return int(any(finding.severity is Severity.ERROR for finding in findings))
