"""Texts of the search for a target: a line before and after each trial, and the result."""

import math
from collections.abc import Sequence

from harness_llm.config.request import ScenarioPlan
from harness_llm.pipeline.live.run_progress import clock
from harness_llm.pipeline.tuning.search_steps import (
    Confirm,
    Done,
    Goal,
    Latency,
    Measurement,
    Probe,
    conf_value,
    rounded,
    verdicts,
)
from harness_llm.pipeline.tuning.target_search import drift
from harness_llm.runs.bracket import bracket, full_bracket
from harness_llm.runs.trial_store import Trial

# Ratios from here on are shown as multiples, not in percent.
_TIMES = 10


def describe_step(goal: Goal, trials: Sequence[Measurement], step: Probe | Confirm) -> str:
    """The next trial in one line; for Server with the bracket of the trials so far."""
    if isinstance(step, Probe):
        text, expected_s = f"next: probe of {step.queries} queries", step.queries / step.target
    else:
        text = f"next: run of full length, {goal.full_queries(step.target)} queries"
        expected_s = goal.full_s(step.target, step.target)
    if goal.load.scenario != "Server":
        return text
    text = f"{text} at {step.target:g} queries/s, about {clock(expected_s)}"
    if isinstance(step, Confirm) and not any(trial.latencies for trial in trials):
        text += "; probes would take about as long as a full run, or the budget leaves time for one run only"
    return "; ".join([text, *_so_far(goal, trials)])


def describe_trial(trial: Trial, measured: Measurement) -> str:
    """A finished trial in one line."""
    kind = f"{trial.kind} {trial.number}: {trial.state} at {trial.target_qps:g}" if trial.target_qps else trial.kind
    facts = [kind]
    facts += [_latency(name, one) for name, one in zip(("TTFT", "TPOT"), measured.latencies, strict=False)]
    if measured.duration_s:
        facts.append(f"{measured.duration_s:.1f} s")
    if measured.throughput:
        facts.append(f"throughput {measured.throughput:.4g} samples/s")
    return ", ".join([*facts, *([trial.reason] if trial.reason else [])])


def _latency(name: str, latency: Latency) -> str:
    least = "at least " if latency.at_least else ""
    share = f"{latency.ratio:.0%} of" if latency.ratio < _TIMES else f"{latency.ratio:.0f} times"
    return f"p99 {name} {least}{share} its limit" + (" (queue grows)" if latency.at_least else "")


def describe_result(goal: Goal, trials: Sequence[Measurement], done: Done, plan: ScenarioPlan, file: str) -> str:
    """The result: the line of user.conf, how sure it is, and what it took."""
    full = sum(trial.full for trial in trials)
    minutes = sum(trial.seconds for trial in trials) / 60
    took = f"{len(trials) - full} probes, {full} runs of full length, {minutes:.1f} minutes"
    if done.target is None:
        return "; ".join([done.reason, *_so_far(goal, trials), took])
    lines = [f"{plan.target_key} = {conf_value(goal.load.scenario, done.target):.6g}", f"write this line to {file}"]
    lines += _server_lines(trials, done) if goal.load.scenario == "Server" else _duration_lines(goal, trials, done)
    return "\n".join([*lines, took])


def _server_lines(trials: Sequence[Measurement], done: Done) -> list[str]:
    """The interval of the highest VALID target, and the trials that bound it."""
    full = full_bracket(verdicts(trials))
    probes = [one.target for one in verdicts(trials) if not one.full and not one.valid]
    probe = min((target for target in probes if full.valid < target < full.invalid), default=math.inf)
    bounds = [f"{full.valid:g} VALID at full length"]
    bounds += [f"{probe:g} INVALID in a probe, which is less certain"] if probe < math.inf else []
    bounds += [f"{full.invalid:g} INVALID at full length"] if full.invalid < math.inf else []
    high = f"{'below ' if rounded(done.high) >= full.invalid else ''}{done.high:.4g}"
    return [
        f"highest VALID target: {done.low:.4g} to {high} queries/s with 90 % probability by a model of the trials,",
        f"if the throughput of equal runs differs by {drift(trials):.1%} (standard deviation)",
        f"bracket: {', '.join(bounds)}",
    ]


def _duration_lines(goal: Goal, trials: Sequence[Measurement], done: Done) -> list[str]:
    confirmed = [trial.duration_s for trial in trials if trial.full and trial.valid and trial.target == done.target]
    low, high = sorted(conf_value(goal.load.scenario, target) for target in (done.low, done.high))
    return [
        f"run of {max(confirmed):.1f} s, at least {goal.load.min_duration_s:g} s required",
        f"the same run with targets from {low:.4g} to {high:.4g}",
    ]


def _so_far(goal: Goal, trials: Sequence[Measurement]) -> list[str]:
    """The bracket of a Server search, whose targets are not only a hint; empty before the first measurement."""
    known = verdicts(trials) if goal.load.scenario == "Server" else []
    return [f"so far {bracket(known)}"] if known else []
