"""A submission: prepare the assets, plan and run what is missing, package."""

import functools
import shlex
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness_llm.checker.check import check
from harness_llm.checker.findings import Finding
from harness_llm.checker.official import OfficialVerdict, run_official
from harness_llm.config.assets import Assets, Preparation, missing, prepare
from harness_llm.config.checkpoint import checkpoint_digest, weight_files
from harness_llm.config.inference_checkout import checkout
from harness_llm.config.load import issued, seconds
from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.config.rules import load_round
from harness_llm.errors import EnvironmentMissing
from harness_llm.evaluate.run_result import Scorer
from harness_llm.hardware.device_lock import hold
from harness_llm.hardware.ecc import UNTOLD, read_ecc
from harness_llm.hardware.host_settings import read_host_settings
from harness_llm.hardware.machine import detect
from harness_llm.hardware.nodes import merged
from harness_llm.loadgen.versions import loadgen_version
from harness_llm.paths import Workspace
from harness_llm.pipeline.attempts import Attempt, RunAttempts, missing_runs_error, with_obstacles
from harness_llm.pipeline.judgement import judge_run
from harness_llm.pipeline.live.run_progress import RunView, clock
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.profiling import profiling_of
from harness_llm.pipeline.run import ScenarioContext, execute_run
from harness_llm.pipeline.run_facts import run_facts
from harness_llm.pipeline.scenario_pool import start_scenario_pool
from harness_llm.pipeline.scenario_runs import ScenarioRuns
from harness_llm.prepare.preparation import preparation_of
from harness_llm.prepare.provision import provide
from harness_llm.prepare.published import PublishedPreparation
from harness_llm.replicas.ray.cluster import Cluster, query_cluster
from harness_llm.runs.fingerprint import fingerprint
from harness_llm.runs.record import NodeRecord, Run, find_runs
from harness_llm.runs.selection import Candidates, Selection, Wanted, with_inferred
from harness_llm.submission.package import Package, package, package_calibration

# Facts of a run that must equal those of a run that would be made now.
_SAME_WORK = ("dataset", "samples", "sampling", "profile", "accuracy")


@dataclass
class Pipeline:
    """Prepares, runs and packages one request.

    Attributes:
        machine: hardware and software of this machine, or of all nodes of the cluster together.
        cluster: the nodes that run the replicas; None for this machine.
        rates: measured samples per second by scenario, which predict the next run.
    """

    request: Request
    panel: Panel
    machine: dict[str, str] = field(default_factory=detect)
    cluster: Cluster | None = None
    rates: dict[str, float] = field(default_factory=dict)

    def submit(self) -> Package:
        """Run the requested tests that are missing, and make the tree; the same call again continues.

        Raises:
            HarnessError: a run is not VALID or not allowed in the division; with a table of all such runs.
        """
        options = self.request.options
        with self._devices("submit"):
            selection, assets, made = self._complete()
            if missing := [run for run in made if not run.valid]:
                again = f"{options.command()} --company {shlex.quote(options.company)}"
                raise missing_runs_error(missing, len(selection.run_keys), again)
            return self._package(selection, assets)

    def complete(self) -> list[RunAttempts]:
        """Run the requested tests that are missing; returns every requested test, with the selected earlier runs."""
        with self._devices("submit"):
            selection, _, made = self._complete()
            tests = self.request.requested_tests
            earlier = [s for s in selection.run_keys if s.run and s.done and s.run_key.test in tests]
            new = {run.run_key: run for run in made}
            return [*made, *(RunAttempts(s.run_key, (Attempt(s.run),)) for s in earlier if s.run_key not in new)]

    def run(self) -> list[RunAttempts]:
        """Run the requested tests of every scenario, even if they have results."""
        with self.prepared("run") as assets:
            tests = self.request.requested_tests
            return [run for plan in self.request.scenarios for run in self.scenario_runs(plan, assets).run(tests)]

    def prepare(self) -> None:
        """Download, train and quantize what the runs need."""
        with self._devices("prepare"):
            self._prepare()

    @contextmanager
    def prepared(self, verb: str) -> Iterator[Assets]:
        """Hold the devices for the command `verb`, and prepare the assets."""
        with self._devices(verb):
            yield self._prepare()

    def _devices(self, verb: str) -> AbstractContextManager[None]:
        options = self.request.options
        return hold(options.gpu, options.command(verb=verb))

    def _complete(self) -> tuple[Selection, Assets, list[RunAttempts]]:
        """Judge what is only measured, and run what is missing.

        Returns:
            The selection with the new runs, the assets, and the new runs.
        """
        found = self.assets()
        candidates = self.candidates(found)
        selection = candidates.select()
        self.announce(selection)
        assets = self._prepare()
        if found is None:
            candidates = self.candidates(assets)
            selection = candidates.select()
        made: list[RunAttempts] = []
        for plan in self.request.scenarios:
            own = [s for s in selection.missing if s.run_key.scenario == plan.scenario]
            own = [s for s in own if s.run_key.test in self.request.requested_tests]
            measured = [s.measured for s in own if s.measured]
            made += self.scenario_runs(plan, assets).run([s.run_key.test for s in own if not s.measured], measured)
        new = [attempt.run for run in made for attempt in run.attempts if attempt.run]
        selection = candidates.select(new)
        return selection, assets, with_obstacles(made, selection) if self.request.profile.packaged else made

    def package(self) -> Package:
        """Make the tree of finished runs.

        Raises:
            EnvironmentMissing: the assets of the runs are missing.
            GateFailed: a run is not finished.
        """
        assets = self.required_assets()
        return self._package(self.candidates(assets, current=False).select(), assets)

    def package_calibration(self) -> tuple[Path, list[str]]:
        """Write the calibration document, which needs no run; returns its path and notices for the submitter.

        Raises:
            EnvironmentMissing: the checkpoint is missing.
        """
        request, assets = self.request, self.preparation.assets
        if not weight_files(assets.checkpoint):
            raise EnvironmentMissing(
                "missing checkpoint", where=str(assets.checkpoint), hint=request.options.command(verb="prepare")
            )
        fingerprints = {plan.scenario: self.fingerprint(plan, assets) for plan in request.scenarios}
        return package_calibration(request.submission, fingerprints, request.workspace, assets.checkpoint)

    def _package(self, selection: Selection, assets: Assets) -> Package:
        request = self.request
        selection = with_inferred(selection, request.options.inferred)
        if checkout(request.workspace):
            self.panel.say("the official scripts score the logs that they have not scored yet; this takes minutes")
        return package(request.submission, selection, request.workspace, assets)

    def _nodes(self) -> dict[str, NodeRecord]:
        """The machines of a run; only the host settings of this one if the system file alone describes the system."""
        if self.cluster:
            return self.cluster.records()
        machine, ecc = (self.machine, read_ecc()) if self.request.measures_this_host else ({}, UNTOLD)
        return {"": NodeRecord(machine=machine, host=read_host_settings(), ecc=ecc)}

    def _prepare(self) -> Assets:
        """Download, train and quantize what is missing; check that every node of a cluster has it."""
        preparation = self.preparation
        if isinstance(preparation, PublishedPreparation):
            provide(preparation, self.request.options.gpu, self.panel.stage)
        assets = prepare(preparation, self.panel.stage)
        if self.cluster:
            paths = [assets.checkpoint, assets.calibration, *filter(None, [assets.draft])]
            query_cluster(self.cluster.address, self.request.workspace.stage_log("nodes"), paths)
        return assets

    @property
    def preparation(self) -> Preparation:
        """The stages that make the benchmark's assets."""
        request = self.request
        return preparation_of(request.benchmark, request.workspace, request.samples("accuracy"))

    def unprepared(self) -> list[str]:
        """The stages of the preparation that are not done."""
        return missing(self.preparation)

    def assets(self) -> Assets | None:
        """The assets; None if one is missing."""
        return None if self.unprepared() else self.preparation.assets

    def required_assets(self) -> Assets:
        """The assets.

        Raises:
            EnvironmentMissing: one is missing.
        """
        if stages := self.unprepared():
            raise EnvironmentMissing(
                f"{self.request.benchmark.name} is not prepared",
                found=f"stages to do: {', '.join(stages)}",
                hint=self.request.options.command(verb="prepare"),
            )
        return self.preparation.assets

    def scorer(self, assets: Assets) -> Scorer:
        """The scorer of accuracy runs."""
        return Scorer(self.request.benchmark, self.request.variants, assets)

    def fingerprint(self, plan: ScenarioPlan, assets: Assets) -> dict[str, Any]:
        """The fingerprint that a run of `plan` has if it is made now."""
        return fingerprint(
            plan.config,
            engine=self.request.options.engine,
            checkpoint=checkpoint_digest(assets.checkpoint),
            draft=checkpoint_digest(assets.draft) if assets.draft and plan.config.draft_tokens else "",
            loadgen=loadgen_version(self.request.round),
            machine=self.machine,
            nodes=self.cluster.facts() if self.cluster else (),
        )

    @property
    def _plans(self) -> dict[str, ScenarioPlan]:
        return {plan.scenario: plan for plan in self.request.scenarios}

    @functools.cached_property
    def _earlier_runs(self) -> list[Run]:
        """All runs of the system before this command, read once."""
        return find_runs(self.request.workspace.logs, self.request.options.system_name)

    def candidates(self, assets: Assets | None, *, current: bool = True) -> Candidates:
        """The runs of this request, with the conditions for their selection; no runs without the assets.

        Args:
            current: select runs that equal those that would be made now, otherwise those of the newest fingerprint.
        """
        request = self.request
        fingerprints = (
            {p.scenario: self.fingerprint(p, assets) for p in request.scenarios} if assets and current else {}
        )
        wanted = Wanted(
            benchmark=request.benchmark.name,
            profile=request.profile.name,
            round=request.round.round,
            division=request.options.division,
            rehearsed=request.profile.rehearsed,
            fingerprints=fingerprints,
        )
        runs = [run for run in self._earlier_runs if self._same_work(run, assets)] if assets else []
        return Candidates(runs, request.options.measured, request.tests, wanted)

    def _same_work(self, run: Run, assets: Assets) -> bool:
        """Whether a run is of this request, with its data set and sampling; the user.conf may differ."""
        plan, test = self._plans.get(run.run_key.scenario), run.run_key.test
        if run.run_key.benchmark != self.request.benchmark.name or not plan or test not in self.request.tests:
            return False
        if run.record is None:
            return True
        now = run_facts(self.request, plan, assets, test)
        return all(run.record.run_facts.get(key) == now[key] for key in _SAME_WORK)

    def announce(self, selection: Selection) -> None:
        """Print the plan: the stages of the preparation, and every run with its predicted duration."""
        for stage in self.unprepared():
            self.panel.say(f"  to prepare: {stage}")
        total = 0.0
        for status in selection.run_keys:
            if status.run_key.test not in self.request.requested_tests:
                continue
            view = self._view(status.run_key.scenario, status.run_key.test)
            words = "done" if status.done else "to judge again" if status.measured else ""
            total += 0 if words else view.predicted_s
            words = words or f"{view.total} samples, about {clock(view.predicted_s)}"
            reason = f" ({status.state_text}: {status.reason})" if status.run and not status.done else ""
            self.panel.say(f"  {status.run_key.scenario:13}{status.run_key.test:13}{words}{reason}")
        self.panel.say(f"about {clock(total)} of measurement; the engine starts once per scenario")

    def _view(self, scenario: str, test: str) -> RunView:
        plan = self._plans[scenario]
        rate = self.rates.get(scenario) or self._earlier_rate(plan)
        audit = self.request.audit_samples(test)
        return RunView(
            name=f"{scenario} {test}",
            total=issued(plan.load, test, audit),
            predicted_s=seconds(plan.load, test, rate, audit),
            limit=self.request.rules.latency_ms.get(scenario),
            min_duration_s=plan.load.min_duration_s if test == "performance" else None,
        )

    def _earlier_rate(self, plan: ScenarioPlan) -> float:
        """Samples per second of the newest run on this system; the target if there is none."""
        rates = [
            run.record.metrics["samples_per_second"]
            for run in self._earlier_runs
            if run.record
            and (run.run_key.benchmark, run.run_key.scenario) == (self.request.benchmark.name, plan.scenario)
            and "samples_per_second" in run.record.metrics
        ]
        return rates[-1] if rates else plan.load.target_qps or 1 / plan.load.target_latency_s

    def scenario_runs(self, plan: ScenarioPlan, assets: Assets) -> ScenarioRuns:
        """The runs of `plan`."""
        return ScenarioRuns(
            self.request,
            plan.scenario,
            start=lambda request: self.start_context(request, plan, assets),
            execute=self.execute,
            judge=lambda run: judge_run(run, self.request, plan, self.scorer(assets)),
            panel=self.panel,
        )

    def start_context(self, request: Request, plan: ScenarioPlan, assets: Assets) -> ScenarioContext:
        """Start the replica pool of `plan` with its logs below the folder of `request`.

        Raises:
            HarnessError: it did not start.
        """
        self.panel.say(f"{plan.scenario}: starting {plan.config.replicas} x {request.options.engine}")
        try:
            pool = start_scenario_pool(request, plan, assets, self.cluster, self.panel.starting)
        finally:
            self.panel.end()
        facts, profiling = self.fingerprint(plan, assets), profiling_of(request, plan.scenario)
        scorer = self.scorer(assets)
        return ScenarioContext(request, plan, assets, scorer, facts, pool, self._nodes, profiling=profiling)

    def execute(self, context: ScenarioContext, test: str) -> Run:
        """Run `test` on a complete replica pool."""
        scenario = context.plan.scenario
        try:
            context.pool.await_restarts(self.panel.say, self.panel.starting)
            self.panel.begin(self._view(scenario, test))
            run = execute_run(context, test, self.panel)
        finally:
            self.panel.end()
        if run.record:
            found = run.record.prediction | run.record.metrics
            self.rates[scenario] = found.get("samples_per_second", self.rates.get(scenario, 0))
        return run


def build_pipeline(request: Request, panel: Panel, cluster: Cluster | None) -> Pipeline:
    """A pipeline for this machine, or for the nodes of `cluster`."""
    if not cluster:
        return Pipeline(request, panel)
    return Pipeline(request, panel, merged([node.info.machine for node in cluster.nodes]), cluster)


def check_tree(tree: Path, round_name: str) -> tuple[list[Finding], list[OfficialVerdict]]:
    """The findings of this checker, and the verdicts of the official one if mlcommons/inference is checked out."""
    inference = checkout(Workspace())
    verdicts = run_official(tree, round_name, inference) if inference else []
    return check(tree, load_round(round_name)), verdicts
