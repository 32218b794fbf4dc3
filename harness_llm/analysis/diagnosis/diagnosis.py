"""Diagnosis of a run: all rules, which cause explains which, and their order. Pure, on what `read_run` has read."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harness_llm.analysis.diagnosis.causes import CAUSES, Cause
from harness_llm.analysis.diagnosis.client_causes import Headroom, headroom, late_client
from harness_llm.analysis.diagnosis.device_causes import throttling
from harness_llm.analysis.diagnosis.finding import Finding
from harness_llm.analysis.diagnosis.latency_causes import (
    Limit,
    exceeded_limits,
    latencies_ms,
    limits,
    queries_above,
    too_few_queries,
)
from harness_llm.analysis.diagnosis.load_causes import drain_tail, queue_growth, stopped_by_probe, too_short
from harness_llm.analysis.diagnosis.outcome_causes import failed_run, loadgen_errors, missed_gates, not_judged
from harness_llm.analysis.diagnosis.pause_causes import pauses
from harness_llm.analysis.diagnosis.replica_causes import (
    empty_shares,
    failed_replicas,
    preemptions,
    slow_replicas,
    starved_batches,
)
from harness_llm.analysis.diagnosis.robust import percentile
from harness_llm.analysis.diagnosis.run_data import RunData
from harness_llm.runs.record import Run

Rule = Callable[[RunData], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    failed_run,
    not_judged,
    failed_replicas,
    missed_gates,
    loadgen_errors,
    stopped_by_probe,
    too_short,
    too_few_queries,
    exceeded_limits,
    queue_growth,
    throttling,
    slow_replicas,
    pauses,
    preemptions,
    late_client,
    starved_batches,
    drain_tail,
)
_PERFORMANCE = "performance"
_MS = 1000
_SPEED = (Cause.THROTTLING, Cause.PREEMPTION)
# The rules that also hold for accuracy and compliance runs, whose speed does not count.
_OF_ALL_TESTS = (failed_run, not_judged, failed_replicas, missed_gates, loadgen_errors)


@dataclass(frozen=True)
class Diagnosis:
    """The causes of a run's state and speed, most important first; consequences follow their causes.

    Attributes:
        limits: the limited latencies.
        client: delays in LoadGen's process; None without first tokens.
        batch_fill: Offline: full share of the batches while queries are left to send.
        unrecorded: whether there are no records, so that most causes cannot be found.
    """

    run: Run
    findings: tuple[Finding, ...]
    limits: tuple[Limit, ...]
    client: Headroom | None
    batch_fill: float | None
    unrecorded: bool


def diagnose(data: RunData) -> Diagnosis:
    """Find the causes of a run."""
    performance = data.record.test == _PERFORMANCE
    rules = RULES if performance else _OF_ALL_TESTS
    findings = [finding for rule in rules for finding in rule(data)]
    explained = [replace(finding, because_of=tuple(_explanations(data, finding, findings))) for finding in findings]
    empty = empty_shares(data) if performance else None
    return Diagnosis(
        data.run,
        tuple(_ordered(explained)),
        tuple(limits(data)) if performance else (),
        headroom(data) if performance else None,
        None if empty is None else 1 - float(empty.mean()),
        data.queries is None,
    )


def _explanations(data: RunData, effect: Finding, findings: Iterable[Finding]) -> list[Cause]:
    """The causes each of which suffices to explain `effect`; if none does, all if they suffice together."""
    possible = [finding for finding in findings if finding.cause in CAUSES[effect.cause].explained_by]
    found = [cause for cause in possible if _suffice(data, [cause], effect)]
    if not found and possible and _suffice(data, possible, effect):
        found = possible
    return list(dict.fromkeys(finding.cause for finding in found))


def _suffice(data: RunData, causes: Sequence[Finding], effect: Finding) -> bool:
    """Whether `effect` would not exist without `causes`, as far as the records show."""
    if effect.cause in (Cause.TTFT_LIMIT, Cause.TPOT_LIMIT, Cause.LATENCY_LIMIT):
        return _suffice_for_limit(data, causes, effect)
    if effect.cause is Cause.TOO_FEW_QUERIES:
        above = queries_above(data)
        return bool(above.any()) and not (above & ~_affected(causes, len(above))).any()
    if effect.cause is Cause.QUEUE_GROWTH:
        return _suffice_for_growth(data, causes, effect)
    if effect.cause is Cause.DRAIN_TAIL:
        done = data.require_queries["completion_s"]
        return bool(_affected(causes, len(done))[np.nanargmax(done)])
    return all(set(cause.replicas) & set(effect.replicas) for cause in causes)


def _affected(causes: Sequence[Finding], count: int) -> NDArray[np.bool_]:
    """The queries that any of `causes` delays, without those that concern all."""
    masks = [cause.affected for cause in causes if cause.affected is not None]
    return np.asarray(np.logical_or.reduce([np.zeros(count, dtype=bool), *masks]), dtype=bool)


def _suffice_for_growth(data: RunData, causes: Sequence[Finding], effect: Finding) -> bool:
    """Whether the queue would not grow: `causes` take the missing capacity, or LoadGen is as late."""
    names = {cause.cause for cause in causes}
    client = headroom(data)
    if Cause.CLIENT_LATE in names and client and effect.delay_s * _MS <= client.p99_late:
        return True
    return effect.loss <= sum(cause.loss for cause in causes if cause.cause is not Cause.CLIENT_LATE) or (
        Cause.REPLICA_FAILED in names
    )


def _suffice_for_limit(data: RunData, causes: Sequence[Finding], effect: Finding) -> bool:
    """Whether p99 is within the limit without the queries that `causes` delay, or without their loss of speed."""
    names = {cause.cause for cause in causes}
    if names & {Cause.QUEUE_GROWTH, Cause.REPLICA_FAILED}:
        return True
    limit = next(limit for limit in limits(data) if limit.cause is effect.cause)
    if Cause.CLIENT_LATE in names and _without_lateness(data, limit) <= limit.limit:
        return True
    speed = math.prod(1 - cause.loss for cause in causes if cause.affected is None and cause.cause in _SPEED)
    if data.queries is None:
        return limit.p99 * speed <= limit.limit
    values = latencies_ms(data, effect.cause)
    remaining = values[~_affected(causes, len(values))]
    if np.isnan(remaining).all():
        return True
    p99 = percentile(remaining, 99) if len(remaining) < len(values) else limit.p99
    return p99 * speed <= limit.limit


def _without_lateness(data: RunData, limit: Limit) -> float:
    """The p99 in ms without the lateness of LoadGen's process.

    It reports tokens as late as it issues queries: both threads run in the same process. So TTFT has its lateness
    twice, and TPOT once for all tokens of an answer.
    """
    client = headroom(data)
    if client is None:
        return limit.p99
    if limit.cause is Cause.TPOT_LIMIT:
        tokens = float(np.nanmedian(data.require_queries["output_tokens"]))
        return limit.p99 - client.p99_late / max(tokens - 1, 1)
    return client.p99_replica_ttft - client.p99_late


def _ordered(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Root causes by importance, each followed by its consequences.

    Causes that decide the state, or explain one that does, are first; then those with the larger loss.
    """
    present = {finding.cause for finding in findings}
    deciding = {cause for finding in findings if finding.decides for cause in finding.because_of}
    roots = [finding for finding in findings if not present.intersection(finding.because_of)]
    given: list[Finding] = []
    for root in sorted(roots, key=lambda one: (not (one.decides or one.cause in deciding), -one.loss)):
        given.append(root)
        given += _consequences(root.cause, findings, given)
    yield from given


def _consequences(cause: Cause, findings: Sequence[Finding], given: Sequence[Finding]) -> list[Finding]:
    found: list[Finding] = []
    for finding in sorted(findings, key=lambda one: len(one.because_of)):
        if cause in finding.because_of and finding not in given and finding not in found:
            found.append(finding)
            found += [more for more in _consequences(finding.cause, findings, [*given, *found]) if more not in found]
    return found
