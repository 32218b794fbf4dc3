"""Rules of the check, and their findings.

A rule is a function that yields the violations of one subject: the tree, a system, a result or a log. The first line of
its docstring is the message of its findings. Its basis determines their severity.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from harness_llm.errors import ConfigError

S = TypeVar("S")


class Severity(StrEnum):
    """Severity of a finding; only errors change the exit code.

    In a tree of small runs, findings on the size of runs are `scale`. A result outside the scope is `not judged`.
    """

    ERROR = "error"
    WARNING = "warning"
    SCALE = "scale"
    NOT_JUDGED = "not judged"


class Authority(StrEnum):
    """Source of a rule.

    CHECKER: the official checker rejects the result. CLAUSE: a clause of MLCommons' rules forbids it, and the official
    checker does not check that clause. ADVICE: neither of them. SCOPE: the rules here do not apply to the result.
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
    """Authority of a rule, and its citation: file and function or line."""

    authority: Authority
    citation: str


def rejected(citation: str) -> Basis:
    """Basis: the official checker rejects it; citation in tools/submission/submission_checker."""
    return Basis(Authority.CHECKER, citation)


def forbidden(citation: str) -> Basis:
    """Basis: a clause forbids it; citation by file and line."""
    return Basis(Authority.CLAUSE, citation)


def advised(citation: str) -> Basis:
    """Basis: advice; citation of its source."""
    return Basis(Authority.ADVICE, citation)


@dataclass(frozen=True)
class Finding:
    """One violation of a rule in a tree.

    Attributes:
        rule: id of the rule, for example `seeds`.
        authority: source of the rule.
        citation: file and line of the source.
        severity: error, warning, scale or not judged.
        what: message of the rule, one sentence.
        path: path relative to the tree.
        expected: expected value.
        found: found value.
        hint: how to correct it.
        scale: whether the rule concerns only size or duration of a run.
        logs: paths of all logs that a finding on several logs concerns.
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
    logs: tuple[str, ...] = ()

    def on(self, basis: Basis) -> "Finding":
        """Copy of the finding with another basis."""
        return replace(self, **basis._asdict(), severity=_SEVERITY[basis.authority])


class Violation(NamedTuple):
    """A violation that a rule yields; `hint` and `basis` override those of the rule."""

    path: Path
    expected: str = ""
    found: str = ""
    hint: str | None = None
    basis: Basis | None = None
    logs: Sequence[Path] = ()


@dataclass(frozen=True)
class Rule(Generic[S]):
    """A rule on subjects of one type."""

    id: str
    basis: Basis
    what: str
    hint: str
    scale: bool
    violations: Callable[[S], Iterable[Violation]]

    def findings(self, subject: S, tree: Path) -> Iterator[Finding]:
        """Apply the rule to `subject`; unreadable files become findings too."""
        try:
            for violation in self.violations(subject):
                yield self._finding(violation, tree)
        except ConfigError as error:
            violation = Violation(Path(error.where), error.expected, error.found or error.what, error.hint)
            yield replace(self._finding(violation, tree), what=error.what, scale=False)

    def _finding(self, violation: Violation, tree: Path) -> Finding:
        authority, citation = violation.basis or self.basis
        return Finding(
            rule=self.id,
            authority=authority,
            citation=citation,
            severity=_SEVERITY[authority],
            what=self.what,
            path=str(violation.path.relative_to(tree)),
            expected=violation.expected,
            found=violation.found,
            hint=self.hint if violation.hint is None else violation.hint,
            scale=self.scale,
            logs=tuple(str(log.relative_to(tree)) for log in violation.logs),
        )


def rule(
    id: str,  # noqa: A002 - the field's name in --json
    basis: Basis,
    *,
    hint: str = "",
    scale: bool = False,
) -> Callable[[Callable[[S], Iterable[Violation]]], Rule[S]]:
    """Decorator that makes a function a rule; `scale` marks rules on the size of runs."""

    def decorate(violations: Callable[[S], Iterable[Violation]]) -> Rule[S]:
        what = (violations.__doc__ or "").strip().splitlines()[0].rstrip(".")
        return Rule(id, basis, what, hint, scale, violations)

    return decorate


def exit_code(findings: Iterable[Finding]) -> int:
    """1 if at least one finding is an error, else 0."""
    return int(any(finding.severity is Severity.ERROR for finding in findings))
