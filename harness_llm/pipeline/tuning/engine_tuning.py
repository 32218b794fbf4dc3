"""The engine part of a tuning session: the search, its trials, and its result in words."""

from collections import deque
from collections.abc import Callable

from msgspec.structs import replace as changed

from harness_llm.analysis.interval import CONFIDENCE
from harness_llm.config.assets import Assets
from harness_llm.config.request import ScenarioPlan
from harness_llm.errors import ConfigError, RunFailed
from harness_llm.hardware.gpus import NO_ACCELERATOR
from harness_llm.pipeline.submit import Pipeline
from harness_llm.pipeline.tuning.engine_probes import PoolProbes, Probes
from harness_llm.pipeline.tuning.engine_search import Comparison, EngineSearch, Outcome, Step, score
from harness_llm.pipeline.tuning.search_space import Settings, load_space
from harness_llm.pipeline.tuning.settings_check import SettingsCheck
from harness_llm.pipeline.tuning.trial_runs import TrialRuns
from harness_llm.runs.trial_store import Trial, TrialStore

Say = Callable[[str], None]
# Failed trials of the shipped settings in a row that end the session.
_MAX_FAILURES = 3


def tune_engine(pipeline: Pipeline, plan: ScenarioPlan, assets: Assets, store: TrialStore, budget_s: float) -> Outcome:
    """Search engine settings that are faster than those of `plan`; continue with the trials in `store`.

    Raises:
        HarnessError: the shipped settings do not run, or the engine has no search space.
    """
    request, say = pipeline.request, pipeline.panel.say
    accelerated = request.options.gpu != NO_ACCELERATOR
    space = load_space(request.options.engine, plan.config, plan.scenario, accelerated=accelerated)
    names = ", ".join(parameter.name for parameter in space.parameters)
    say(f"{plan.scenario}: {space.size} combinations of {names}")
    runs = TrialRuns(pipeline, plan, assets, store.folder)
    try:
        search = EngineSearch(space, SettingsCheck(request, plan.scenario), budget_s)
        return run_search(search, store, PoolProbes(request, runs, space), say)
    finally:
        runs.stop()


def run_search(search: EngineSearch, store: TrialStore, probes: Probes, say: Say) -> Outcome:
    """Make the trials of `search` that are not in `store`.

    Raises:
        ConfigError: the trials in `store` are those of another search.
        RunFailed: the shipped settings do not run.
    """
    steps = search.run()
    earlier = deque(trial for trial in store.trials if trial.kind == "engine")
    if earlier:
        say(f"{len(earlier)} trials of {store.folder} are used again")
    step = next(steps)
    try:
        while True:
            trial = _earlier(earlier, step, store) if earlier else _measure(step, store, probes, say)
            step = steps.send(trial)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome


def _earlier(earlier: deque[Trial], step: Step, store: TrialStore) -> Trial:
    trial = earlier.popleft()
    if trial.settings != step.settings:
        raise ConfigError(
            "the trials of the session do not follow from the search",
            where=f"{store.folder}: trial {trial.number}",
            expected=str(step.settings),
            found=str(trial.settings),
            hint="move the folder away; the same command then starts a new session",
        )
    return trial


def _measure(step: Step, store: TrialStore, probes: Probes, say: Say) -> Trial:
    say(f"trial {store.next_number}, {step.note}: {describe_settings(step.settings)}")
    trial = pruned(probes.measure(store.next_number, step), step)
    store.append(trial)
    say(f"  {describe_trial(trial)}")
    last = [one for one in store.trials if one.kind == "engine"][-_MAX_FAILURES:]
    if len(last) == _MAX_FAILURES and all(one.state == "FAILED" and not one.settings for one in last):
        raise RunFailed(
            "the shipped engine settings do not run",
            where=str(store.folder),
            found=f"{_MAX_FAILURES} failed trials in a row; the last: {trial.reason}",
        )
    return trial


def pruned(trial: Trial, step: Step) -> Trial:
    """`trial`, or a PRUNED one if it is slower than `step` allows."""
    speed = score(trial)
    if step.pruned_below is None or speed is None or speed >= step.pruned_below:
        return trial
    reason = f"slower than the shipped settings beyond noise: {speed:.4g}, not at least {step.pruned_below:.4g}"
    return changed(trial, state="PRUNED", reason="; ".join(filter(None, [reason, trial.reason])))


def describe_settings(settings: Settings) -> str:
    """The settings in one line."""
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "shipped settings"


def describe_trial(trial: Trial) -> str:
    """The result of a trial in one line."""
    margins = [("TTFT", trial.ttft_margin), ("TPOT", trial.tpot_margin)]
    figures = [
        f"{trial.throughput:.4g} samples/s" if trial.throughput else "",
        *(f"p99 {name} {1 - margin:.1%} of its limit" for name, margin in margins if margin is not None),
        f"{trial.seconds:.0f} s",
        trial.reason,
    ]
    return f"{trial.state}: {', '.join(filter(None, figures))}"


def describe_outcome(outcome: Outcome) -> str:
    """The result of the search in words."""
    failed = f", {outcome.failed} of them failed" if outcome.failed else ""
    scope = f"{outcome.measured} of {outcome.space - 1} other settings were measured{failed}"
    if outcome.pruned:
        scope += f", {outcome.pruned} were pruned"
    if outcome.reason:
        scope += f"; {outcome.reason}"
    if found := outcome.found:
        return f"{describe_settings(found.settings)} is better than shipped by {_speed(found)}\n  {scope}"
    lines = [f"  {describe_settings(one.settings)}: {_speed(one)}" for one in outcome.finalists]
    compared = any(one.interval for one in outcome.finalists)
    verdict = "none of the measured settings is better than shipped beyond noise"
    verdict = verdict if compared else "inconclusive: no settings were compared with the shipped ones"
    return "\n".join([verdict, *lines, f"  {scope}"])


def _speed(one: Comparison) -> str:
    if one.speed is None:
        return f"failed after {one.pairs} pairs"
    text = f"{one.speed - 1:+.1%}"
    if one.interval is None:
        return f"{text} (no interval: {one.pairs} pairs)"
    low, high = one.interval.low - 1, one.interval.high - 1
    return f"{text} ({CONFIDENCE:.0%} interval {low:+.1%} to {high:+.1%}, {one.pairs} pairs)"
