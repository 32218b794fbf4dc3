"""A submission: prepare the assets, plan and run what is missing, package."""

import functools
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness_llm.checker.check import check
from harness_llm.checker.findings import Finding
from harness_llm.checker.official import OfficialVerdict, run_official
from harness_llm.checker.tree_round import TreeRound
from harness_llm.config.assets import Assets, Preparation, missing, prepare
from harness_llm.config.checkpoint import checkpoint_digest, weight_files
from harness_llm.config.commands import repeat
from harness_llm.config.inference_checkout import checkout
from harness_llm.config.plan import targets_path
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
from harness_llm.pipeline.earlier_runs import present_differences, with_earlier_runs
from harness_llm.pipeline.forecast import Forecast
from harness_llm.pipeline.judgement import judge_run
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.plan_text import plan_lines
from harness_llm.pipeline.present_runs import present_runs
from harness_llm.pipeline.profiling import profiling_of
from harness_llm.pipeline.run import ScenarioContext, execute_run
from harness_llm.pipeline.scenario_pool import start_scenario_pool
from harness_llm.pipeline.scenario_runs import ScenarioRuns
from harness_llm.prepare.preparation import preparation_of
from harness_llm.prepare.provision import provide
from harness_llm.prepare.published import PublishedPreparation
from harness_llm.replicas.ray.cluster import Cluster, query_cluster
from harness_llm.runs.fingerprint import fingerprint
from harness_llm.runs.record import NodeRecord, Run, RunKey, find_runs
from harness_llm.runs.selection import Candidates, Present, Selection, Todo, Wanted, with_inferred
from harness_llm.runs.stored_source import source_at_start
from harness_llm.submission.package import Package, package, package_calibration


@dataclass
class Pipeline:
    """Prepares, runs and packages one request.

    Attributes:
        machine: hardware and software of this machine, or of all nodes of the cluster together.
        cluster: the nodes that run the replicas; None for this machine.
    """

    request: Request
    panel: Panel
    machine: dict[str, str] = field(default_factory=detect)
    cluster: Cluster | None = None

    def submit(self) -> Package:
        """Run the requested tests that are missing, and make the tree; the same call again continues.

        Raises:
            HarnessError: a run is not VALID or not allowed in the division; with a table of all such runs.
        """
        options = self.request.options
        with self._devices("submit"):
            selection, assets, made = self._complete()
            if missing := [run for run in made if not run.valid]:
                again = repeat(options, company=options.company)
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
        self.announce(selection, candidates.wanted.present)
        assets = self._prepare()
        if found is None:
            candidates = self.candidates(assets)
            selection = candidates.select()
            self.announce(selection, candidates.wanted.present)
        made = [run for plan in self.request.scenarios for run in self._runs_of(plan, selection, assets)]
        new = [attempt.run for run in made for attempt in run.attempts if attempt.run]
        selection = candidates.select(new)
        made = with_earlier_runs(made, selection, candidates.wanted.present, targets_path(self.request))
        return selection, assets, with_obstacles(made, selection) if self.request.profile.packaged else made

    def _runs_of(self, plan: ScenarioPlan, selection: Selection, assets: Assets) -> list[RunAttempts]:
        """Make the missing runs of a scenario; a run that is INVALID with the present settings is not repeated."""
        own = [status for status in selection.missing if status.run_key.scenario == plan.scenario]
        own = [status for status in own if status.run_key.test in self.request.requested_tests]
        judged = [status.run for status in own if status.run and status.todo is Todo.JUDGE]
        tests = [status.run_key.test for status in own if status.todo is Todo.MEASURE]
        settled = [RunAttempts(s.run_key, (Attempt(s.run),), settled=True) for s in own if s.todo is Todo.NOTHING]
        return [*self.scenario_runs(plan, assets).run(tests, judged), *settled]

    def package(self) -> Package:
        """Make the tree of the newest complete set of runs; notices name what a run made now would have otherwise.

        Raises:
            EnvironmentMissing: the assets of the runs are missing.
            GateFailed: a run is not finished.
        """
        options = self.request.options
        assets = self.required_assets(hint=repeat(options, company=options.company))
        candidates = self.candidates(assets, newest=True)
        selection = candidates.select()
        made = self._package(selection, assets)
        return made._replace(notices=made.notices + present_differences(selection, candidates.wanted.present))

    def package_calibration(self) -> tuple[Path, list[str]]:
        """Write the calibration document, which needs no run; returns its path and notices for the submitter.

        Raises:
            EnvironmentMissing: the checkpoint is missing.
        """
        request, assets = self.request, self.preparation.assets
        if not weight_files(assets.checkpoint):
            raise EnvironmentMissing(
                "missing checkpoint", where=str(assets.checkpoint), hint=repeat(request.options, verb="prepare")
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

    def required_assets(self, hint: str = "") -> Assets:
        """The assets; `hint` is the command that makes them, by default only them.

        Raises:
            EnvironmentMissing: one is missing.
        """
        if stages := self.unprepared():
            raise EnvironmentMissing(
                f"{self.request.benchmark.name} is not prepared",
                found=f"stages to do: {', '.join(stages)}",
                hint=hint or repeat(self.request.options, verb="prepare"),
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

    @functools.cached_property
    def _earlier_runs(self) -> list[Run]:
        """All runs of the system before this command, read once."""
        return find_runs(self.request.workspace.logs, self.request.options.system_name)

    @functools.cached_property
    def forecast(self) -> Forecast:
        """Predicts the runs, by those made before and in this command."""
        return Forecast(self.request, self._earlier_runs)

    def candidates(self, assets: Assets | None, *, newest: bool = False) -> Candidates:
        """The runs of this request, with the conditions for their selection; without the assets, none can be selected.

        Args:
            newest: select the newest complete set, instead of the runs that equal those that would be made now.
        """
        request = self.request
        wanted = Wanted(
            benchmark=request.benchmark.name,
            profile=request.profile.name,
            round=request.round.round,
            division=request.options.division,
            present=present_runs(request, assets, self.fingerprint, self.scorer(assets)) if assets else {},
            newest=newest,
            again=request.options.again,
            rehearsed=request.profile.rehearsed,
        )
        return Candidates(self._earlier_runs, request.options.measured, request.tests, wanted)

    def announce(self, selection: Selection, present: Mapping[RunKey, Present]) -> None:
        """Print the plan."""
        asked = [status for status in selection.run_keys if status.run_key.test in self.request.requested_tests]
        for line in plan_lines(asked, present, self.forecast, self.unprepared()):
            self.panel.say(line)

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
        scorer, source = self.scorer(assets), source_at_start(request.workspace)
        return ScenarioContext(
            request, plan, assets, scorer, facts, pool, self._nodes, profiling=profiling, source=source
        )

    def execute(self, context: ScenarioContext, test: str) -> Run:
        """Run `test` on a complete replica pool."""
        scenario = context.plan.scenario
        try:
            context.pool.await_restarts(self.panel.say, self.panel.starting)
            self.panel.begin(self.forecast.view(scenario, test))
            run = execute_run(context, test, self.panel)
        finally:
            self.panel.end()
        self.forecast.learn(run)
        return run


def build_pipeline(request: Request, panel: Panel, cluster: Cluster | None) -> Pipeline:
    """A pipeline for this machine, or for the nodes of `cluster`."""
    if not cluster:
        return Pipeline(request, panel)
    return Pipeline(request, panel, merged([node.info.machine for node in cluster.nodes]), cluster)


def check_tree(chosen: TreeRound) -> tuple[list[Finding], list[OfficialVerdict]]:
    """The findings of this checker, and the verdicts of the official one if mlcommons/inference is checked out."""
    inference = checkout(Workspace())
    verdicts = run_official(chosen.tree, chosen.name, inference) if inference else []
    return check(chosen.tree, load_round(chosen.name), chosen), verdicts
