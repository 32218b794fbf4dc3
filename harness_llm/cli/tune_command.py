"""The command tune."""

import sys
from dataclasses import replace

from harness_llm.config.commands import command_line, name_of, typed
from harness_llm.config.duration import parse_duration
from harness_llm.config.engines import REPLAY
from harness_llm.config.options import Options
from harness_llm.config.profile import Profile
from harness_llm.config.request import Request, load_requests
from harness_llm.errors import ConfigError, GateFailed
from harness_llm.paths import Workspace
from harness_llm.pipeline.doctor.doctor import require_checks
from harness_llm.pipeline.doctor.purpose import Purpose
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.submit import build_pipeline
from harness_llm.pipeline.tuning.counted_run import keep_as_run
from harness_llm.pipeline.tuning.optuna_layer import require_optuna
from harness_llm.pipeline.tuning.scenario_tuning import ScenarioTuning, Tuned
from harness_llm.runs.stored_source import remember_source
from harness_llm.runs.trial_store import What

# In shorter runs, the queue at a target above the throughput may stay within the TTFT limit.
_LASTING_MS = 60_000
_LONGER = f"{typed(profile='fast')}, or {typed(profile='valid')}"


def tune(options: Options, panel: Panel, *, what: What, budget: str, write: bool) -> None:
    """Search engine settings, the target, or both, for each scenario of one benchmark; print or write the changes.

    Raises:
        ConfigError: several benchmarks, an invalid budget, a profile whose runs are never VALID, or `write` with values
            of the replay engine.
        GateFailed: no target was found for a scenario; the others are tuned.
        HarnessError: trials cannot be made.
    """
    budget_s = parse_duration(budget, "--budget")
    requests = load_requests(replace(options, tests=("performance",)), Workspace())
    if len(requests) > 1:
        raise ConfigError("tune accepts one benchmark", where=name_of("model"), found=options.model)
    _check(requests[0], write=write)
    _warn_of_burst(requests[0].profile, what, panel)
    remember_source(Workspace())
    [ready] = require_checks(requests, lambda _: Purpose.TUNE, panel.say)
    if what != "target":
        require_optuna(panel.say)
    pipeline, missing = build_pipeline(ready.request, panel, ready.cluster), dict[str, Tuned]()
    with pipeline.prepared("tune") as assets:
        for plan in pipeline.request.scenarios:
            given = pipeline.request.options.repeatable(plan.scenario).given
            command = command_line("tune", **given, what=what, budget=budget)
            tuning = ScenarioTuning(pipeline, plan, assets, what, budget_s, _print, again=write)
            tuned = tuning.run(command)
            _print_changes(tuned)
            if write:
                _write(tuned, panel)
            else:
                panel.say(_next_step(tuned, command, pipeline.request))
            if tuned.missing:
                missing[plan.scenario] = tuned
    if missing:
        raise GateFailed(
            "the search ended without a VALID target",
            where=", ".join(str(tuned.folder) for tuned in missing.values()),
            found="; ".join(f"{scenario}: {tuned.missing}" for scenario, tuned in missing.items()),
            hint=f"a larger --budget if the time was too short; {command_line('diagnose', 'RUN')} explains a run of "
            "trials.jsonl; to start a new session, move the folder away",
        )


def _check(request: Request, *, write: bool) -> None:
    profile = request.profile
    if not profile.packaged:
        raise ConfigError(
            f"runs of the profile {profile.name} are too short for a target",
            where=name_of("profile"),
            hint=_LONGER,
        )
    if write and not _is_writable(request):
        raise ConfigError(
            "values found with the replay engine, which computes nothing, are not written",
            where="--write",
            hint=f"omit --write, or choose another {name_of('engine')}",
        )


def _is_writable(request: Request) -> bool:
    """Whether the found values are of an engine that computes."""
    return request.options.engine != REPLAY


def _next_step(tuned: Tuned, command: str, request: Request) -> str:
    if not tuned.edits:
        return "no file changes"
    if not _is_writable(request):
        return "these values are of the replay engine, which computes nothing: they cannot be written"
    return f"to write this and {tuned.record.file}: {command} --write"


def _warn_of_burst(profile: Profile, what: What, panel: Panel) -> None:
    if what != "engine" and profile.min_duration_ms is not None and profile.min_duration_ms < _LASTING_MS:
        panel.say(f"notice: runs of the profile {profile.name} last seconds: their target is that of a burst")
        panel.say(f"hint: {_LONGER}, for a target that the system sustains")


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _print_changes(tuned: Tuned) -> None:
    for change in tuned.edits:
        _print(change.diff(Workspace().root))


def _write(tuned: Tuned, panel: Panel) -> None:
    """Write the changes of settings and the record of the trials."""
    for change in (*tuned.edits, tuned.record):
        if change.before != change.after:
            change.write()
            panel.say(f"wrote {change.file}")
    if tuned.run:
        panel.say(f"submit counts the run that confirmed the target: {keep_as_run(tuned.run, Workspace().logs)}")
