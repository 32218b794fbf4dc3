"""Load and duration: queue growth, targets above the throughput, short runs, and the Offline drain tail."""

from collections.abc import Iterator

import numpy as np

from harness_llm.analysis.diagnosis.causes import Cause
from harness_llm.analysis.diagnosis.finding import Finding, Setting, figure
from harness_llm.analysis.diagnosis.robust import Estimate, Floats, level, slope
from harness_llm.analysis.diagnosis.run_data import ReplicaData, RunData
from harness_llm.analysis.diagnosis.thresholds import (
    BATCH_GROWTH,
    DRAIN_TAIL,
    FEWEST_BLOCKS,
    MARGIN,
    QUEUE_DELAY,
)
from harness_llm.config.commands import command, name_of
from harness_llm.loadgen.prediction import OFFLINE_SHARE, SERVER_SHARE, SINGLE_STREAM_SHARE
from harness_llm.runs.record import State

_BLOCKS, _POINTS = 12, 20
_LONGEST_PROFILE = "valid"


def _block_means(start: float, end: float, starts: Floats, ends: Floats) -> tuple[Floats, Floats]:
    """Middle of each block of time, and the mean number of intervals in it."""
    times = np.linspace(start, end, _BLOCKS * _POINTS, endpoint=False)
    means = level(times, starts, ends).reshape(_BLOCKS, _POINTS).mean(axis=1)
    return times.reshape(_BLOCKS, _POINTS).mean(axis=1), np.asarray(means)


def queue_growth(data: RunData) -> Iterator[Finding]:
    """Queries without a first token, or queries in flight, increase during the arrivals of Server."""
    if data.queries is None or data.scenario != "Server":
        return
    queries, (start, end) = data.queries, data.window
    first = queries["first_token_s"] if (~np.isnan(queries["first_token_s"])).any() else queries["completion_s"]
    served = _rate(first, start, end)
    waiting = slope(*_block_means(start, end, queries["issue_s"], first))
    if not served or waiting is None:
        return
    delay_s = waiting.low * (end - start) / served
    if delay_s > QUEUE_DELAY.value * _limit_s(data):
        yield _growth(data, waiting, first, "queries without a first token", delay_s)
        return
    latency = np.nanquantile(queries["completion_s"] - queries["issue_s"], 0.9)
    begin = start + latency  # until then the first queries fill the batch
    if end - begin < FEWEST_BLOCKS.value * latency:
        return
    times, means = _block_means(begin, end, queries["issue_s"], queries["completion_s"])
    batch = slope(times, means)
    if batch is not None and batch.low * (end - begin) > BATCH_GROWTH.value * float(np.median(means)):
        yield _growth(data, batch, queries["completion_s"], "queries in flight", batch.low * (end - begin) / served)


def _rate(times: Floats, start: float, end: float) -> float:
    """Events per second from `start` to `end`; if most happen later, until 99 % of all have happened."""
    until = end if np.nanmedian(times) <= end else float(np.nanquantile(times, 0.99))
    return float(((times > start) & (times <= until)).sum()) / max(until - start, 1e-9)


def _limit_s(data: RunData) -> float:
    """The TTFT limit; without one, the median latency of the answers."""
    if data.log is not None and data.log.requested_ttft_ms:
        return data.log.requested_ttft_ms / 1000
    queries = data.require_queries
    return float(np.nanmedian(queries["completion_s"] - queries["issue_s"]))


def _growth(data: RunData, growth: Estimate, served: Floats, what: str, delay_s: float) -> Finding:
    (start, end), queries = data.window, data.require_queries
    middle = (start + end) / 2
    arrivals = float((queries["issue_s"] > middle).sum()) / (end - middle)
    sustained = _rate(served, middle, end)
    following = min(sustained * SERVER_SHARE, data.target_qps * MARGIN.value) if sustained else None
    interval = f"{figure(growth.value)} queries/s (99 % interval {figure(growth.low)} to {figure(growth.high)})"
    return Finding(
        Cause.QUEUE_GROWTH,
        f"{what} grow by {figure(growth.value)} per second: {figure(arrivals, 4)} queries/s arrive, "
        f"{figure(sustained, 4)} are served",
        {f"growth of {what}": interval, "arrivals": f"{figure(arrivals, 4)}/s", "served": f"{figure(sustained, 4)}/s"},
        f"lower the rate below what the replicas sustain; {command('tune')} searches the highest valid one",
        (data.target("target_qps", following),),
        loss=max(1 - sustained / arrivals, 0.0) if arrivals else 0.0,
        effect=f"at the end of the run a query waits at least {delay_s:.2g} s longer than at its start",
        delay_s=delay_s,
    )


def stopped_by_probe(data: RunData) -> Iterator[Finding]:
    """The probe stopped the run because its target cannot become VALID."""
    prediction = data.record.prediction
    if not prediction or data.log is not None or data.record.state is not State.INVALID:
        return
    rate = prediction["samples_per_second"]
    bounds = f"{figure(rate, 4)} samples/s ({figure(prediction['low'], 4)} to {figure(prediction['high'], 4)})"
    if data.scenario == "Server":
        yield Finding(
            Cause.TARGET_TOO_HIGH,
            f"target {data.target_qps:g} queries/s, predicted throughput {bounds}",
            {"target": f"{data.target_qps:g} queries/s", "predicted throughput": bounds},
            "lower the target",
            (data.target("target_qps", rate * SERVER_SHARE),),
            loss=1 - rate / data.target_qps,
            effect=f"the target is {figure(data.target_qps / rate)} times the predicted throughput",
        )
        return
    yield _short(data, rate, f"predicted throughput {bounds}", {"predicted throughput": bounds})


def too_short(data: RunData) -> Iterator[Finding]:
    """The run ended before min_duration."""
    log = data.log
    if log is None or log.get("result_min_duration_met") is not False:
        return
    seconds, needed = log.duration_s, log.min_duration_ms / 1000
    summary = f"{figure(seconds, 4)} s of at least {figure(needed, 4)} s"
    evidence = {"duration": f"{figure(seconds, 4)} s", "min_duration": f"{figure(needed, 4)} s"}
    evidence["throughput"] = f"{figure(log.samples_per_second, 4)} samples/s"
    yield _short(data, log.samples_per_second, summary, evidence, 1 - seconds / needed)


def _short(data: RunData, rate: float, summary: str, evidence: dict[str, str], loss: float = 0.0) -> Finding:
    """The target decides the number of queries; LoadGen issues them for 110 % of the duration in Offline."""
    if data.scenario == "SingleStream":
        setting = data.target("target_latency", 1000 / rate * SINGLE_STREAM_SHARE)
    else:
        setting = data.target("target_qps", rate * OFFLINE_SHARE)
    return Finding(
        Cause.TOO_SHORT,
        summary,
        evidence,
        "set the target to what the system reaches, so that LoadGen issues enough queries",
        (setting,),
        loss=loss,
        effect=f"the run has {1 - loss:.0%} of the required duration" if loss else "LoadGen was not started",
    )


def drain_tail(data: RunData) -> Iterator[Finding]:
    """The end of an Offline run in which the batches empty."""
    if data.queries is None or data.replicas is None or data.scenario != "Offline":
        return
    last_send, end = float(np.nanmax(data.queries["send_s"])), data.end_s
    drains = [_drain(replica, data.queries["output_tokens"][replica.own], last_send) for replica in _replicas(data)]
    steady, tokens = (sum(drain[index] for drain in drains) for index in (0, 1))
    if not steady > 0:
        return
    seconds = end - last_send
    lost = seconds - tokens / steady
    share = lost / end
    if share < DRAIN_TAIL.value:
        return
    longest = data.queries["output_tokens"][np.nanargmax(data.queries["completion_s"])]
    yield Finding(
        Cause.DRAIN_TAIL,
        f"after the last query was sent, {figure(seconds)} s with emptying batches cost {figure(lost)} s of "
        f"{figure(end, 4)} s",
        {
            "drain": f"{figure(seconds)} s, throughput {1 - lost / seconds:.0%} of that before",
            "last answer": f"{longest:.0f} tokens (mean {np.nanmean(data.queries['output_tokens']):.0f})",
        },
        "a longer run makes the tail a smaller part of it; a smaller backlog keeps long answers from starting late",
        _longer(data, 2 * share / DRAIN_TAIL.value),
        loss=share,
        effect=f"without it, the throughput is {share / (1 - share):.0%} higher",
        affected=data.queries["completion_s"] > last_send,
    )


def _replicas(data: RunData) -> list[ReplicaData]:
    return [replica for replica in data.by_replica.values() if not np.isnan(replica.done).all()]


def _drain(replica: ReplicaData, answers: Floats, last_send: float) -> tuple[float, float]:
    """Tokens per second of a replica before the last query was sent, and its tokens after that."""
    times, tokens = replica.beats["time_s"], np.nan_to_num(replica.beats["output_tokens"])
    steady = (times > np.nanmin(replica.done)) & (times <= last_send) & ~np.isnan(replica.beats["tokens_per_s"])
    if not steady.any():
        return 0.0, 0.0
    rate = float(np.median(replica.beats["tokens_per_s"][steady]))
    # The first row has no count: it has the tokens until then.
    counted = np.cumsum(tokens) + rate * max(float(times[0]), 0.0)
    before = float(np.interp(last_send, times, counted))
    return rate, max(float(np.nansum(answers)) - before, 0.0)


def _longer(data: RunData, factor: float) -> tuple[Setting, ...]:
    """Settings of a run that is `factor` times as long: LoadGen issues samples for 110 % of min_duration."""
    now = int(data.settings["harness_config"]["backlog"])
    backlog = (data.option("harness_config", "backlog", now // 2),) if now else ()
    if data.record.profile != _LONGEST_PROFILE:
        return (Setting(name_of("profile"), data.record.profile, _LONGEST_PROFILE), *backlog)
    return (data.target("target_qps", data.target_qps * factor), *backlog)
