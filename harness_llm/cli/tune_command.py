"""The command tune."""

import re
import shlex
import sys
from dataclasses import replace

from harness_llm.config.assets import Assets
from harness_llm.config.options import Options
from harness_llm.config.request import ScenarioPlan, load_requests
from harness_llm.errors import ConfigError
from harness_llm.paths import Workspace
from harness_llm.pipeline.doctor.doctor import require_checks
from harness_llm.pipeline.doctor.purpose import Purpose
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.submit import Pipeline, build_pipeline
from harness_llm.pipeline.tuning.target_session import target_session, tune_target
from harness_llm.runs.trial_store import What, open_session


def tune(options: Options, panel: Panel, *, what: What, budget: str) -> None:
    """Search the target of each scenario of one benchmark, and print it.

    Raises:
        ConfigError: several benchmarks, an invalid budget, or a profile whose runs are never VALID.
        HarnessError: no target was found.
    """
    budget_s = parse_duration(budget)
    requests = load_requests(replace(options, tests=("performance",)), Workspace())
    if len(requests) > 1:
        raise ConfigError("tune accepts one benchmark", where="--model", found=options.model)
    profile = requests[0].profile
    if not profile.packaged:
        raise ConfigError(
            f"runs of the profile {profile.name} are too short for a target",
            where="--profile",
            hint="--profile smoke, fast or valid",
        )
    [ready] = require_checks(requests, lambda _: Purpose.MEASURE, panel.say)
    pipeline = build_pipeline(ready.request, panel, ready.cluster)
    with pipeline.prepared() as assets:
        for plan in pipeline.request.scenarios:
            _tune(pipeline, plan, assets, what, budget_s)


def _tune(pipeline: Pipeline, plan: ScenarioPlan, assets: Assets, what: What, budget_s: float) -> None:
    command = f"{pipeline.request.options.command(plan.scenario, verb='tune')} --what {shlex.quote(what)}"
    wanted = target_session(pipeline, plan, assets, what, command)
    store = open_session(pipeline.request.workspace.tuning, wanted)
    text, found = tune_target(pipeline, plan, assets, store, budget_s)
    store.finish(found)
    sys.stdout.write(f"{text}\ntrials: {store.folder}\n")


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as 90m, 4h or 1h30m.

    Raises:
        ConfigError: `text` is no duration.
    """
    parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip())
    if not parts or not any(parts.groups()):
        raise ConfigError("invalid duration", where="--budget", expected="such as 90m, 4h or 1h30m", found=text)
    return sum(float(part or 0) * unit for part, unit in zip(parts.groups(), (3600, 60, 1), strict=True))
