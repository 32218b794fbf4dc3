"""Texts of the search for a target: a line before and after each trial, and the result."""

from collections.abc import Sequence

from harness_llm.config.request import ScenarioPlan
from harness_llm.pipeline.live.run_progress import clock
from harness_llm.pipeline.tuning.search_steps import Confirm, Done, Goal, Latency, Measurement, Probe, conf_value
from harness_llm.pipeline.tuning.target_search import drift, model
from harness_llm.runs.trial_store import Trial

# Ratios from here on are shown as multiples, not in percent.
_TIMES = 10


def describe_step(goal: Goal, trials: Sequence[Measurement], step: Probe | Confirm) -> str:
    """The next trial in one line; for Server with the interval of the highest VALID target so far."""
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
    if any(trial.latencies or trial.throughput for trial in trials):
        found = model(goal, trials)
        text += f"; highest VALID target so far: {found.quantile(0.05):.4g} to {found.quantile(0.95):.4g}"
    return text


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
        return f"{done.reason}; {took}"
    if goal.load.scenario == "SingleStream":
        low, high = 1000 / done.high, 1000 / done.low
    else:
        low, high = done.low, done.high
    value = conf_value(goal.load.scenario, done.target)
    lines = [f"{plan.target_key} = {value:.6g}", f"write this line to {file}"]
    if goal.load.scenario == "Server":
        lines.append(f"highest VALID target: {low:.4g} to {high:.4g} queries/s with 90 % probability,")
        lines.append(f"if the throughput of equal runs differs by {drift(trials):.1%} (standard deviation)")
        invalid = [trial.target for trial in trials if not trial.valid and not trial.failed and trial.target > value]
        if invalid:
            lines.append(f"bracket: {value:g} VALID at full length, {min(invalid):g} INVALID")
    else:
        duration_s = max(
            trial.duration_s for trial in trials if trial.full and trial.valid and trial.target == done.target
        )
        lines.append(f"run of {duration_s:.1f} s, at least {goal.load.min_duration_s:g} s required")
        lines.append(f"the same run with targets from {low:.4g} to {high:.4g}")
    return "\n".join([*lines, took])
