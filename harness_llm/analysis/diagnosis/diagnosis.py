"""Diagnosis of a run: all rules, which cause explains which, and their order. Pure, on what `read_run` has read."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness_llm.analysis.diagnosis.causes import CAUSES, Cause
from harness_llm.analysis.diagnosis.client_causes import Headroom, headroom, late_client
from harness_llm.analysis.diagnosis.device_causes import replicas_of, throttled_devices, throttling
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
from harness_llm.analysis.diagnosis.outcome_causes import failed_run, loadgen_errors, missed_gates
from harness_llm.analysis.diagnosis.pause_causes import pauses
from harness_llm.analysis.diagnosis.replica_causes import (
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
# The rules that also hold for accuracy and compliance runs, whose speed does not count.
_OF_ALL_TESTS = (failed_run, failed_replicas, missed_gates, loadgen_errors)


@dataclass(frozen=True)
class Diagnosis:
    """The causes of a run's state and speed, most important first; consequences follow their causes.

    Attributes:
        limits: the limited latencies.
        client: delays in LoadGen's process; None without first tokens.
        unrecorded: whether there are no records, so that most causes cannot be found.
    """

    run: Run
    findings: tuple[Finding, ...]
    limits: tuple[Limit, ...]
    client: Headroom | None
    unrecorded: bool


def diagnose(data: RunData) -> Diagnosis:
    """Find the causes of a run."""
    performance = data.record.test == _PERFORMANCE
    rules = RULES if performance else _OF_ALL_TESTS
    findings = [finding for rule in rules for finding in rule(data)]
    explained = [replace(finding, because_of=tuple(_explanations(data, finding, findings))) for finding in findings]
    return Diagnosis(
        data.run,
        tuple(_ordered(explained)),
        tuple(limits(data)) if performance else (),
        headroom(data) if performance else None,
        data.queries is None,
    )


def _explanations(data: RunData, finding: Finding, others: Iterable[Finding]) -> list[Cause]:
    """The causes that suffice to explain `finding`, without repetition."""
    possible = CAUSES[finding.cause].explained_by
    found = [other.cause for other in others if other.cause in possible and _suffices(data, other, finding)]
    return list(dict.fromkeys(found))


def _suffices(data: RunData, cause: Finding, effect: Finding) -> bool:
    """Whether `effect` would not exist without `cause`, as far as the records show."""
    if effect.cause in (Cause.TTFT_LIMIT, Cause.TPOT_LIMIT, Cause.LATENCY_LIMIT):
        return _suffices_for_limit(data, cause, effect)
    if effect.cause is Cause.TOO_FEW_QUERIES:
        above = queries_above(data)
        return cause.affected is not None and bool(above.any()) and not (above & ~cause.affected).any()
    if effect.cause is Cause.QUEUE_GROWTH:
        return _suffices_for_growth(data, cause, effect)
    if (cause.cause, effect.cause) == (Cause.THROTTLING, Cause.SLOW_REPLICA):
        own = {replicas_of(data, device.device) for device in throttled_devices(data)}
        return any(f"{name} " in effect.summary for name in own)
    if effect.cause is Cause.DRAIN_TAIL:
        return _ends_last(data, cause)
    return True


def _suffices_for_growth(data: RunData, cause: Finding, effect: Finding) -> bool:
    """Whether the queue would not grow without `cause`: it takes the missing capacity, or LoadGen is as late."""
    if cause.cause is Cause.CLIENT_LATE:
        client = headroom(data)
        return client is not None and effect.delay_s * _MS <= client.p99_late
    return effect.loss <= cause.loss or cause.cause is Cause.REPLICA_FAILED


def _suffices_for_limit(data: RunData, cause: Finding, effect: Finding) -> bool:
    """Whether p99 is within the limit without the queries that `cause` delays."""
    if cause.cause in (Cause.QUEUE_GROWTH, Cause.REPLICA_FAILED):
        return True
    limit = next(limit for limit in limits(data) if limit.cause is effect.cause)
    if cause.cause is Cause.CLIENT_LATE:
        return _without_lateness(data, limit) <= limit.limit
    if cause.affected is None:
        return limit.p99 * (1 - cause.loss) <= limit.limit
    remaining = percentile(latencies_ms(data, effect.cause)[~cause.affected], 99)
    return not math.isnan(remaining) and remaining <= limit.limit


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


def _ends_last(data: RunData, cause: Finding) -> bool:
    """Whether the last answer is of a query that `cause` delays."""
    return cause.affected is not None and bool(cause.affected[np.nanargmax(data.require_queries["completion_s"])])


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
