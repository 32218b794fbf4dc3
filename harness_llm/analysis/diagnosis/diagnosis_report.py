"""A diagnosis as text, as a few lines, and as JSON."""

import math
from collections.abc import Mapping
from typing import Any

from harness_llm.analysis.diagnosis.causes import CAUSES, Cause
from harness_llm.analysis.diagnosis.diagnosis import Diagnosis
from harness_llm.analysis.diagnosis.finding import Finding, figure
from harness_llm.config.commands import command

_NO_CAUSE = "no cause found: no limit exceeded, no capacity lost"
_UNRECORDED = "no records of queries and replicas: only causes in run.json and LoadGen's log can be found"


def render(diagnosis: Diagnosis) -> str:
    """The whole report."""
    run = diagnosis.run
    lines = [f"{run.run_key}: {run.state}", f"  {run.path}", *(f"  {line}" for line in _figures(diagnosis))]
    if diagnosis.unrecorded:
        lines.append(f"  {_UNRECORDED}")
    if not diagnosis.findings:
        return "\n".join([*lines, "", _NO_CAUSE])
    number = 0
    for finding in diagnosis.findings:
        number += not finding.because_of
        head = f"   -> {finding.title}" if finding.because_of else f"{number}. {finding.title}"
        lines += ["", f"{head}: {finding.summary}", *(f"     {line}" for line in _details(finding))]
    return "\n".join(lines)


def _figures(diagnosis: Diagnosis) -> list[str]:
    lines = [f"{limit.name}: {limit}, margin {limit.margin:.0%}" for limit in diagnosis.limits]
    if client := diagnosis.client:
        lines.append(
            f"LoadGen's process: thread late by {figure(client.mean_late)} ms on average; it takes {client.share:.0%} "
            f"of the p99 TTFT"
        )
    if diagnosis.batch_fill is not None:
        lines.append(f"LoadGen's process: batches {diagnosis.batch_fill:.0%} full while queries are left to send")
    return lines


def _details(finding: Finding) -> list[str]:
    lines = [f"evidence  {name}: {text}" for name, text in finding.evidence.items() if not _is_stated(text, finding)]
    if finding.because_of:
        lines.append(f"because   {', '.join(CAUSES[cause].title for cause in finding.because_of)}")
    if finding.effect:
        lines.append(f"effect    {finding.effect}")
    if not finding.because_of:
        lines.append(f"action    {finding.action}")
        lines += [f"set       {setting}" for setting in finding.settings]
        lines += [f"log       {file}" for file in finding.look]
    return lines


def _is_stated(text: str, finding: Finding) -> bool:
    """Whether the summary contains `text`; a bare number may be another figure."""
    return text in finding.summary and not text.replace(",", "").isdecimal()


def headlines(diagnosis: Diagnosis) -> dict[str, Finding]:
    """The root causes by a clause with their consequences, most important first.

    Without the error that ended a run: it is printed in any case.
    """
    found = {}
    for finding in diagnosis.findings:
        if not finding.because_of and finding.cause is not Cause.RUN_FAILED:
            after = [other.title for other in diagnosis.findings if _follows(other, finding, diagnosis)]
            hence = f"; hence {', '.join(after)}" if after else ""
            found[f"{finding.title}: {finding.summary}{hence}"] = finding
    return found


def brief(diagnosis: Diagnosis) -> str:
    """One line per root cause, and one with the action; empty without a cause."""
    lines: list[str] = []
    for headline, finding in headlines(diagnosis).items():
        lines.append(f"  cause: {headline}")
        lines.append("; ".join([f"    {finding.action}", *(f"set {setting}" for setting in finding.settings[:1])]))
    if lines:
        lines.append(f"  {command('diagnose', str(diagnosis.run.path))}")
    return "\n".join(lines)


def _follows(finding: Finding, root: Finding, diagnosis: Diagnosis) -> bool:
    """Whether `root` explains `finding`, also through other causes."""
    if root.cause in finding.because_of:
        return True
    between = [other for other in diagnosis.findings if other.cause in finding.because_of and other is not finding]
    return any(_follows(other, root, diagnosis) for other in between)


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis for programs; findings are in the order of the report."""
    client = diagnosis.client
    return {
        "run": str(diagnosis.run.path),
        "state": diagnosis.run.state,
        "limits": {
            limit.name: {"p99_ms": limit.p99, "limit_ms": limit.limit, "margin": limit.margin}
            for limit in diagnosis.limits
        },
        "client": None if client is None else _numbers(vars(client) | {"share": client.share}),
        "batch_fill": diagnosis.batch_fill,
        "records": not diagnosis.unrecorded,
        "findings": [_finding(finding) for finding in diagnosis.findings],
    }


def _numbers(values: Mapping[str, float]) -> dict[str, float | None]:
    """`values` with None for those that are unknown: JSON has no NaN."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "cause": finding.cause,
        "title": finding.title,
        "summary": finding.summary,
        "evidence": finding.evidence,
        "action": finding.action,
        "settings": [
            {"name": one.name, "now": one.now, "next": one.following, "where": one.where} for one in finding.settings
        ],
        "loss": finding.loss,
        "effect": finding.effect,
        "logs": list(finding.look),
        "replicas": list(finding.replicas),
        "because_of": list(finding.because_of),
    }
