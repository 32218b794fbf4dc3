"""Findings, judged results and official verdicts as text and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from harness_llm.checker.findings import Finding, Severity
from harness_llm.checker.judged_results import JudgedResult
from harness_llm.checker.official import OfficialVerdict
from harness_llm.checker.results_report import counted, counted_findings, render_results
from harness_llm.checker.tree_round import TreeRound

_ORDER = list(Severity)
_PLACES = 5


def render(findings: Sequence[Finding], results: Sequence[JudgedResult] | None = None) -> str:
    """Render findings as text: errors first, grouped by rule, with the paths of each group; then `results`."""
    ordered = sorted(findings, key=lambda f: (_ORDER.index(f.severity), f.rule, f.what, f.citation, f.path))
    groups = groupby(ordered, key=lambda f: (f.severity, f.rule, f.what, f.citation))
    blocks = [_block(list(group)) for _, group in groups]
    listed = [] if results is None else [render_results(results).rstrip()]
    return "\n\n".join([*blocks, *listed, _summary(findings)]) + "\n"


def _block(group: list[Finding]) -> str:
    first = group[0]
    lines = [f"{first.severity} {first.rule}: {first.what}", f"  {first.authority}: {first.citation}"]
    for finding in group[:_PLACES]:
        lines.append(f"  where: {finding.path}")
        lines += [
            f"    {name}: {text}" for name, text in (("expected", finding.expected), ("found", finding.found)) if text
        ]
    if len(group) > _PLACES:
        lines.append(f"  and {len(group) - _PLACES} more")
    hints = dict.fromkeys(finding.hint for finding in group if finding.hint)
    return "\n".join([*lines, *(f"  hint: {hint}" for hint in hints)])


def _summary(findings: Sequence[Finding]) -> str:
    counts = {severity: sum(f.severity is severity for f in findings) for severity in Severity}
    text = counted_findings(counts[Severity.ERROR], counts[Severity.WARNING])
    scale, others = counts[Severity.SCALE], counts[Severity.NOT_JUDGED]
    text += f", {scale} because of small runs" if scale else ""
    return f"{text}, {counted(others, 'result')} not judged" if others else text


def render_official(verdicts: Sequence[OfficialVerdict]) -> str:
    """Render the verdicts of the official checker, one line per run, and its error lines if it rejects the tree."""
    lines = []
    for verdict in verdicts:
        name = " ".join(("official checker", *verdict.arguments))
        lines.append(f"{name}: {'OK' if verdict.passed else 'rejects the tree'} (exit {verdict.exit_code})")
        if not verdict.passed:
            lines += [f"  {line}" for line in (verdict.errors or verdict.tail)[-_PLACES * 2 :]]
    return "\n".join(lines) + "\n"


def as_json(
    chosen: TreeRound,
    findings: Sequence[Finding],
    results: Sequence[JudgedResult],
    verdicts: Sequence[OfficialVerdict],
) -> dict[str, Any]:
    """Round, findings, results and verdicts as a JSON document."""
    return {
        "round": chosen.name,
        "round_source": chosen.source,
        "results": [asdict(result) for result in results],
        "findings": [asdict(finding) for finding in findings],
        "official": [asdict(verdict) for verdict in verdicts],
    }
