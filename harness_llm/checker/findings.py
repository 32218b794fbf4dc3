"""Rules, and what they find.

A rule is a function that yields the faults of one subject (the tree, a system, a result, a log). The first line of its
docstring is the message. Its basis says who demands what it checks, and so whether a fault is an error.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from harness_llm.errors import ConfigError

S = TypeVar("S")


class Severity(StrEnum):
    """An error decides the exit code, a warning is advice.

    What a tree of small runs cannot meet for its size is `scale` there. A result to which no rule applies is
    `not judged`.
    """

    ERROR = "error"
    WARNING = "warning"
    SCALE = "scale"
    NOT_JUDGED = "not judged"


class Authority(StrEnum):
    """Who demands what a rule checks.

    The official checker rejects a result with the fault; a clause of MLCommons' rules forbids it, which the official
    checker does not notice; neither does, and the rule is advice; or the result is out of scope of the rules here.
    """

    CHECKER = "official checker"
    CLAUSE = "clause"
    ADVICE = "advice"
    SCOPE = "scope"


_SEVERITY = {
    Authority.CHECKER: Severity.ERROR,
    Authority.CLAUSE: Severity.ERROR,
    Authority.ADVICE: Severity.WARNING,
    Authority.SCOPE: Severity.NOT_JUDGED,
}


class Basis(NamedTuple):
    """An authority, and the file and function or line where it demands something."""

    authority: Authority
    citation: str


def rejected(citation: str) -> Basis:
    """What the official checker rejects, by file and function of tools/submission/submission_checker."""
    return Basis(Authority.CHECKER, citation)


def forbidden(citation: str) -> Basis:
    """What a clause forbids, by file and line."""
    return Basis(Authority.CLAUSE, citation)


def advised(citation: str) -> Basis:
    """What neither the official checker nor a clause demands, and where it comes from."""
    return Basis(Authority.ADVICE, citation)


@dataclass(frozen=True)
class Finding:
    """One place where a tree departs from a rule.

    Attributes:
        rule: the name of the rule, for example `seeds`.
        authority: the official checker, a clause or advice.
        citation: where it demands this.
        severity: errors decide the exit code.
        what: one sentence that names the fault.
        path: relative to the tree.
        expected: what would have been right.
        found: what is there.
        hint: what to do about it.
        scale: whether it is a matter of size or duration alone.
    """

    rule: str
    authority: Authority
    citation: str
    severity: Severity
    what: str
    path: str
    expected: str
    found: str
    hint: str
    scale: bool = False

    def on(self, basis: Basis) -> "Finding":
        """The same finding on another basis."""
        return replace(self, **basis._asdict(), severity=_SEVERITY[basis.authority])


class Fault(NamedTuple):
    """What a rule yields; `hint` and `basis` replace the rule's own."""

    path: Path
    expected: str = ""
    found: str = ""
    hint: str | None = None
    basis: Basis | None = None


@dataclass(frozen=True)
class Rule(Generic[S]):
    """One named rule over subjects of one kind."""

    id: str
    basis: Basis
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
        authority, citation = fault.basis or self.basis
        return Finding(
            rule=self.id,
            authority=authority,
            citation=citation,
            severity=_SEVERITY[authority],
            what=self.what,
            path=str(fault.path.relative_to(tree)),
            expected=fault.expected,
            found=fault.found,
            hint=self.hint if fault.hint is None else fault.hint,
            scale=self.scale,
        )


def rule(
    id: str,  # noqa: A002 (the word of the finding's readers)
    basis: Basis,
    *,
    hint: str = "",
    scale: bool = False,
) -> Callable[[Callable[[S], Iterable[Fault]]], Rule[S]]:
    """Name the function below as a rule; `scale` marks what small runs cannot meet."""

    def named(faults: Callable[[S], Iterable[Fault]]) -> Rule[S]:
        what = (faults.__doc__ or "").strip().splitlines()[0].rstrip(".")
        return Rule(id, basis, what, hint, scale, faults)

    return named


def exit_code(findings: Iterable[Finding]) -> int:
    """1 if there is an error among the findings, else 0."""
    return int(any(finding.severity is Severity.ERROR for finding in findings))
