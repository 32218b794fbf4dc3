"""Latencies above their limits: TTFT, TPOT, and the latency of whole answers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness_llm.analysis.diagnosis.causes import Cause
from harness_llm.analysis.diagnosis.finding import Finding, Setting, figure
from harness_llm.analysis.diagnosis.robust import Floats, percentile, slope
from harness_llm.analysis.diagnosis.run_data import RunData
from harness_llm.analysis.diagnosis.thresholds import FEWEST_BLOCKS, MARGIN, SMALLEST_STEP
from harness_llm.config.commands import name_of

_MS = 1000
_NS_PER_MS = 1e6
_ALLOWED_ABOVE = 0.01  # LoadGen judges the 99th percentiles
_LONGER = {"fast": "valid", "valid": ""}  # profiles; the others are shorter
_NEEDED = re.compile(r"at\s+least\s+(\d+)")


@dataclass(frozen=True)
class Limit:
    """The 99th percentile of a latency that LoadGen measured, and its limit, in ms."""

    cause: Cause
    name: str
    p99: float
    limit: float

    def __str__(self) -> str:
        return f"p99 {figure(self.p99, 4)} ms, limit {figure(self.limit, 4)} ms"

    @property
    def margin(self) -> float:
        """The share of the limit that is left; negative above it."""
        return 1 - self.p99 / self.limit


def limits(data: RunData) -> Iterator[Limit]:
    """The limited latencies of a run."""
    log = data.log
    if log is None or data.scenario != "Server":
        return
    answer = float(log.get("effective_target_latency_ns", 0)) / _NS_PER_MS
    for cause, name, p99, limit in (
        (Cause.TTFT_LIMIT, "TTFT", log.p99_ttft_ms, log.requested_ttft_ms),
        (Cause.TPOT_LIMIT, "TPOT", log.p99_tpot_ms, log.requested_tpot_ms),
        (Cause.LATENCY_LIMIT, "latency", log.latency_percentiles_ms.get(99), answer),
    ):
        if p99 is not None and limit:
            yield Limit(cause, name, p99, limit)


def latencies_ms(data: RunData, cause: Cause) -> Floats:
    """The limited latency of each query as recorded, without the lateness of LoadGen's thread."""
    queries = data.require_queries
    if cause is Cause.TTFT_LIMIT:
        seconds = queries["first_token_s"] - queries["issue_s"]
    elif cause is Cause.TPOT_LIMIT:
        tokens = np.maximum(queries["output_tokens"] - 1, 1)
        seconds = (queries["completion_s"] - queries["first_token_s"]) / tokens
    else:
        seconds = queries["completion_s"] - queries["issue_s"]
    return np.asarray(seconds * _MS, dtype=np.float64)


def queries_above(data: RunData) -> NDArray[np.bool_]:
    """Whether each query is above a limit; empty without records."""
    if data.queries is None:
        return np.zeros(0, dtype=bool)
    above = np.zeros(len(data.queries["issue_s"]), dtype=bool)
    for limit in limits(data):
        above |= latencies_ms(data, limit.cause) > limit.limit
    return above


def exceeded_limits(data: RunData) -> Iterator[Finding]:
    """A finding for each latency whose p99 is above its limit."""
    for limit in limits(data):
        if limit.p99 <= limit.limit:
            continue
        evidence = {f"p99 {limit.name}": f"{figure(limit.p99, 4)} ms", "limit": f"{figure(limit.limit, 4)} ms"}
        settings: tuple[Setting, ...] = (data.target("target_qps", _lower_target(data, limit)),)
        if data.queries is not None:
            values = latencies_ms(data, limit.cause)
            evidence["queries above the limit"] = f"{np.nanmean(values > limit.limit):.1%}"
            if limit.cause is Cause.TTFT_LIMIT:
                settings = _ttft_settings(data, limit, evidence)
            elif limit.cause is Cause.TPOT_LIMIT:
                settings = _tpot_settings(data, limit, evidence)
        yield Finding(
            limit.cause,
            str(limit),
            evidence,
            "lower the load, or make the steps that it consists of shorter",
            settings,
            loss=1 - limit.limit / limit.p99,
            effect=f"p99 is {figure(limit.p99 / limit.limit)} times the limit",
        )


def _lower_target(data: RunData, limit: Limit) -> float:
    """Latencies near saturation fall faster than the rate, so the rate falls at most by their ratio."""
    return data.target_qps * float(np.clip(limit.limit / limit.p99, SMALLEST_STEP.value, MARGIN.value))


def _ttft_settings(data: RunData, limit: Limit, evidence: dict[str, str]) -> tuple[Setting, ...]:
    """Split TTFT in the time to compute the prompt and the rest, waiting."""
    target = data.target("target_qps", _lower_target(data, limit))
    prompts = data.require_queries["prompt_tokens"]
    least = _least_ms(prompts, latencies_ms(data, limit.cause))
    if least is None:
        return (target,)
    computed = percentile(least, 99)
    evidence["p99 of the time to compute the prompt"] = f"{figure(computed)} ms"
    now = int(data.settings["llm_config"].get("max_num_batched_tokens") or 0)
    if now and computed > limit.limit / 2:
        return (data.option("llm_config", "max_num_batched_tokens", 2 * now), target)
    return (target,)


def _least_ms(prompts: Floats, ttft: Floats) -> Floats | None:
    """The TTFT of each query if it had not waited: a line through the fastest tenth at each prompt length."""
    known = ~np.isnan(ttft)
    edges = np.unique(np.quantile(prompts[known], np.linspace(0, 1, 11))) if known.any() else np.array([])
    if len(edges) < FEWEST_BLOCKS.value:
        return None
    groups = np.digitize(prompts, edges[1:-1])
    points = [
        (prompts[own].mean(), np.quantile(ttft[own], 0.1))
        for group in range(len(edges) - 1)
        if (own := known & (groups == group)).any()
    ]
    lengths, times = (np.array(values) for values in zip(*points, strict=True))
    found = slope(lengths, times)
    if found is None or found.low <= 0:
        return None
    return np.asarray(np.median(times - found.value * lengths) + found.value * prompts, dtype=np.float64)


def _tpot_settings(data: RunData, limit: Limit, evidence: dict[str, str]) -> tuple[Setting, ...]:
    """The batch whose steps meet the limit, by the slope of the step time over the batch."""
    target = data.target("target_qps", _lower_target(data, limit))
    rows = data.replicas
    if rows is None:
        return (target,)
    inside = (rows["time_s"] > data.window[0]) & (rows["time_s"] < data.window[1])
    busy = (
        inside & (rows["steps"] > 0) & (rows["running"] > 0) & (rows["tokens_per_s"] > 0) & (rows["output_tokens"] > 0)
    )
    seconds = rows["output_tokens"][busy] / rows["tokens_per_s"][busy]
    running, step_ms = rows["running"][busy], seconds / rows["steps"][busy] * _MS
    found = slope(running, step_ms)
    if found is None or found.low <= 0:
        return (target,)
    evidence["step"] = f"{figure(float(np.median(step_ms)))} ms at a batch of {np.median(running):.0f}, "
    evidence["step"] += f"{found.value:.2g} ms per query of the batch ({found.low:.2g} to {found.high:.2g})"
    constant = float(np.median(step_ms - found.value * running))
    largest = int((limit.limit * MARGIN.value - constant) / found.value)
    if not 0 < largest < data.batch:
        return (target,)
    return (data.option("llm_config", "max_num_seqs", largest), target)


def too_few_queries(data: RunData) -> Iterator[Finding]:
    """Too few queries for the early stopping or for min_query_count, with latencies within the limits."""
    log = data.log
    if log is None or any(limit.p99 > limit.limit for limit in limits(data)):
        return
    early, counted = log.get("early_stopping_met") is False, log.get("result_min_queries_met") is False
    if not early and not counted:
        return
    texts = " ".join(str(log.get(f"early_stopping_{kind}result", "")) for kind in ("", "ttft_", "tpot_"))
    more = "more queries" in texts
    needed = max([log.query_count * more + int(number) for number in _NEEDED.findall(texts)] + [log.min_query_count])
    share, above = log.query_count / needed if needed else 1.0, int(queries_above(data).sum())
    yield Finding(
        Cause.TOO_FEW_QUERIES,
        f"{log.query_count:,} queries, {above:,} of them above a limit; LoadGen needs {needed:,}",
        {
            "queries": f"{log.query_count:,}",
            "above a limit": f"{above:,}",
            "needed": f"{needed:,}",
            "LoadGen": " ".join(texts.replace("*", "").split()) or "result_min_queries_met is false",
        },
        *_more_queries(data, lower=above > _ALLOWED_ABOVE * log.query_count),
        loss=1 - share,
        effect=f"the run has {share:.0%} of the queries that the percentiles need",
    )


def _more_queries(data: RunData, *, lower: bool) -> tuple[str, tuple[Setting, ...]]:
    """The action and its settings; `lower`: so many queries are above a limit that more of them do not help."""
    now = data.record.profile
    longer = _LONGER.get(now, "fast or valid")
    settings = [Setting(name_of("profile"), now, longer)] if longer else []
    settings.append(data.target("min_query_count", None))
    if not lower:
        return f"issue more queries{': a longer profile' if longer else ''}", tuple(settings)
    target = data.target("target_qps", data.target_qps * MARGIN.value)
    return "lower the load: more than 1 % of the queries are above a limit", (target, *settings)
