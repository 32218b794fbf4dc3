"""The files that `harness-llm tune --write` changes: user.conf, engine settings, and the record of the trials."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness_llm.config.plan import loadgen_models, targets_path
from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.config.user_conf import parse
from harness_llm.fileio import read_text, write_atomically
from harness_llm.pipeline.tuning.search_space import Value
from harness_llm.pipeline.tuning.settings_edit import with_engine_settings, with_target
from harness_llm.runs.trial_store import Session, Trial, TrialStore

# Left out of the record: they name folders of this machine.
_LOCAL = ("run",)


@dataclass(frozen=True)
class FileChange:
    """New content of a file; `before` is empty for a new one."""

    file: Path
    before: str
    after: str

    def diff(self, root: Path) -> str:
        """Unified diff for `patch -p1` in `root`, if the file is below it, else in /."""
        name = self.file.relative_to(root if self.file.is_relative_to(root) else "/").as_posix()
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            f"a/{name}" if self.before else "/dev/null",
            f"b/{name}",
        )
        return "".join(lines)

    def write(self) -> None:
        """Replace the file."""
        with write_atomically(self.file) as temporary:
            temporary.write_text(self.after)


def changes(
    request: Request, plan: ScenarioPlan, settings: Mapping[str, Value], target: float | None
) -> list[FileChange]:
    """The changes that set `settings` and, unless it is None, `target`; none for values that are set.

    Raises:
        ConfigError: a file cannot be edited.
    """
    found = [engine_change(request, plan.scenario, settings)] if settings else []
    if target is not None:
        found.append(target_change(request, plan, target))
    return [change for change in found if change.before != change.after]


def engine_file(request: Request, scenario: str) -> Path:
    """models/<benchmark>/<scenario>_<gpu>.yaml, which may not exist."""
    benchmark = request.benchmark
    own = benchmark.engine_scenarios.get(scenario, scenario).lower()
    return request.workspace.benchmarks / benchmark.settings / f"{own}_{request.options.gpu}.yaml"


def engine_change(request: Request, scenario: str, settings: Mapping[str, Value]) -> FileChange:
    """The change of the settings file; raises as `changes`."""
    file = engine_file(request, scenario)
    before = read_text(file) if file.is_file() else ""
    return FileChange(file, before, with_engine_settings(before, settings, str(file)))


def target_change(request: Request, plan: ScenarioPlan, target: float) -> FileChange:
    """The change of user.conf; raises as `changes`."""
    file = targets_path(request)
    before = read_text(file)
    after = with_target(before, plan.target_key, f"{target:.10g}")
    parse(after, str(file), loadgen_models())
    return FileChange(file, before, after)


def record_change(request: Request, store: TrialStore, scenario: str) -> FileChange:
    """The record of the trials beside the settings file, one line for each: small enough for version control."""
    file = engine_file(request, scenario).with_suffix(f".tuning-{store.session.what}.json")
    before = read_text(file) if file.is_file() else ""
    return FileChange(file, before, render_record(store.session, store.trials))


def render_record(session: Session, trials: list[Trial]) -> str:
    """The session and its trials as JSON."""
    lines = ",\n".join(f"    {json.dumps(_rounded(trial))}" for trial in trials)
    facts = json.dumps(msgspec.to_builtins(session), indent=2).removesuffix("\n}")
    return f'{facts},\n  "trials": [\n{lines}\n  ]\n}}\n'


def _rounded(trial: Trial) -> dict[str, Any]:
    facts = msgspec.to_builtins(trial)
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in facts.items()
        if name not in _LOCAL and value not in (None, "", {})
    }
