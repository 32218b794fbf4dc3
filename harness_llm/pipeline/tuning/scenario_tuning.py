"""Tuning of one scenario: engine settings, target, or both, in one session."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec.structs import replace as changed

from harness_llm.config.assets import Assets
from harness_llm.config.request import ScenarioPlan
from harness_llm.pipeline.submit import Pipeline
from harness_llm.pipeline.tuning.counted_run import confirming_run
from harness_llm.pipeline.tuning.engine_tuning import describe_outcome, tune_engine
from harness_llm.pipeline.tuning.found_files import FileChange, changes, record_change
from harness_llm.pipeline.tuning.search_steps import conf_value
from harness_llm.pipeline.tuning.settings_check import with_settings
from harness_llm.pipeline.tuning.target_session import target_session, tune_target
from harness_llm.runs.record import digest
from harness_llm.runs.trial_store import Session, TrialStore, What, open_session

# Share of the budget for the engine settings, if the target follows.
_ENGINE_SHARE = 0.5


@dataclass(frozen=True)
class Tuned:
    """Result of the tuning of one scenario.

    Attributes:
        folder: of the session.
        edits: changes of settings files and user.conf to the found values.
        record: the record of the trials.
        missing: why no target was found; empty if none was searched.
        run: the run that confirmed the target; None without one.
    """

    folder: Path
    edits: Sequence[FileChange]
    record: FileChange
    missing: str = ""
    run: Path | None = None


@dataclass(frozen=True)
class ScenarioTuning:
    """What to tune.

    Attributes:
        pipeline: with the shipped settings; `plan` is one of its scenarios.
        again: use the newest session of the same settings even if it has ended.
        tell: takes each result as text.
    """

    pipeline: Pipeline
    plan: ScenarioPlan
    assets: Assets
    what: What
    budget_s: float
    tell: Callable[[str], None]
    again: bool = False

    def run(self, command: str) -> Tuned:
        """Make the trials; a session without a target stays open, so that the same command continues it.

        Raises:
            HarnessError: trials cannot be made.
        """
        store = open_session(self.pipeline.request.workspace.tuning, self._session(command), ended=self.again)
        found: dict[str, Any] = {}
        missing = ""
        if self.what != "target":
            found |= self._tune_engine(store)
        if self.what != "engine":
            text, values = self._tune_target(store, found.get("settings", {}))
            found |= values
            missing = "" if values else text
        if store.session.ended is None and not missing:
            store.finish(found)
        self.tell(f"trials: {store.folder}")
        request = self.pipeline.request
        target = found.get("target")
        value = None if target is None else conf_value(self.plan.load.scenario, target)
        edits = changes(request, self.plan, found.get("settings", {}), value)
        record = record_change(request, store, self.plan.scenario)
        return Tuned(store.folder, edits, record, missing, confirming_run(store.trials, target))

    def _session(self, command: str) -> Session:
        """The session; engine trials also depend on the target and on the budget."""
        session = target_session(self.pipeline, self.plan, self.assets, self.what, command)
        if self.what == "target":
            return session
        conf = self.plan.confs["performance"].render()
        facts = {"session": session.fingerprint, "user_conf": conf, "budget_s": self.budget_s}
        return changed(session, fingerprint=digest(facts))

    def _tune_engine(self, store: TrialStore) -> dict[str, Any]:
        share = _ENGINE_SHARE if self.what == "both" else 1.0
        outcome = tune_engine(self.pipeline, self.plan, self.assets, store, self.budget_s * share)
        text = describe_outcome(outcome)
        self.tell(f"{self.plan.scenario}: {text}")
        return {"settings": dict(outcome.found.settings) if outcome.found else {}, "engine": text}

    def _tune_target(self, store: TrialStore, settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Search the target with the found engine settings; return as `tune_target`."""
        request = with_settings(self.pipeline.request, self.plan.scenario, settings)
        pipeline = replace(self.pipeline, request=request)
        spent_s = sum(trial.seconds for trial in store.trials if trial.kind == "engine")
        [plan] = request.scenarios
        text, found = tune_target(pipeline, plan, self.assets, store, self.budget_s - spent_s)
        if found:
            self.tell(text)
        return text, found
