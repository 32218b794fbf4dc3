"""From a request to a checked tree: plans the runs, runs the missing ones, packages, checks."""

import datetime as dt
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
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
from harness_llm.errors import EnvironmentMissing
from harness_llm.evaluate.run_result import Scorer
from harness_llm.hardware.device_lock import hold
from harness_llm.hardware.ecc import UNTOLD
from harness_llm.hardware.gpus import NO_ACCELERATOR, gpu_count, load_gpus
from harness_llm.hardware.machine import detect
from harness_llm.hardware.nodes import merged, merged_ecc
from harness_llm.loadgen.versions import loadgen_version
from harness_llm.paths import Workspace
from harness_llm.pipeline.panel import Panel, RunView, clock
from harness_llm.pipeline.run import ScenarioContext, execute_run, run_facts
from harness_llm.prepare.preparation import preparation_of
from harness_llm.prepare.provision import provide
from harness_llm.prepare.published import PublishedPreparation
from harness_llm.replicas.local import Launcher, launch, process_names, start_pool
from harness_llm.replicas.placement import Placement, device_environments, placement
from harness_llm.replicas.pool import ReplicaPool
from harness_llm.replicas.ray.cluster import Cluster, query_cluster
from harness_llm.replicas.ray.launcher import ray_launcher
from harness_llm.rules import load_round
from harness_llm.runs.fingerprint import fingerprint
from harness_llm.runs.record import Run, State, find_runs
from harness_llm.runs.selection import Selection, Wanted, select, with_inferred
from harness_llm.submission.package import Package, package, package_calibration

_SAME_WORK = ("dataset", "samples", "sampling", "profile", "accuracy")  # facts of a run that must be today's


@dataclass
class Pipeline:
    """One submission under way.

    Attributes:
        machine: what this machine tells of itself, or all nodes of the cluster together.
        cluster: whose nodes hold the replicas; without one this machine does.
        rates: samples a second by scenario, as measured last; predicts the next run.
    """

    request: Request
    panel: Panel
    machine: dict[str, str] = field(default_factory=detect)
    cluster: Cluster | None = None
    rates: dict[str, float] = field(default_factory=dict)

    def submit(self) -> Package:
        """Run what is missing of the tests asked for, and package; the same call again continues."""
        with self._devices():
            assets = self._complete()
            return self._package(self.select(assets, anew=True), assets)

    def complete(self) -> list[Run]:
        """Run what is missing of the tests asked for; the run that counts in each run, else the newest attempt."""
        with self._devices():
            selection = self.select(self._complete(), anew=True)
            return [s.run for s in selection.run_keys if s.run and s.run_key.test in self.request.asked]

    def run(self) -> list[Run]:
        """Run the tests asked for in every scenario, whatever has been run before."""
        with self._devices():
            assets = self._prepare()
            plans = self.request.scenarios
            return [r for plan in plans for r in self._run_scenario(plan, self.request.asked, assets)]

    def prepare(self) -> None:
        """Download, train and quantize what the runs need."""
        with self._devices():
            self._prepare()

    def _devices(self) -> AbstractContextManager[None]:
        choices = self.request.choices
        return hold(choices.gpu, choices.command())

    def _complete(self) -> Assets:
        request = self.request
        self.announce()
        assets = self._prepare()
        selection = self.select(assets, anew=True)
        for plan in request.scenarios:
            missing = [s.run_key.test for s in selection.missing if s.run_key.scenario == plan.scenario]
            if tests := [test for test in missing if test in request.asked]:
                self._run_scenario(plan, tests, assets)
        return assets

    def package(self) -> Package:
        """Package the runs that count.

        Raises:
            EnvironmentMissing: the assets that the runs would be compared with are not there.
            GateFailed: a run is not done.
        """
        assets = self.required_assets()
        return self._package(self.select(assets), assets)

    def package_calibration(self) -> tuple[Path, list[str]]:
        """Write the calibration document, which needs no run; its path, and sentences for the submitter.

        Raises:
            EnvironmentMissing: the checkpoint is not there.
        """
        request, assets = self.request, self.preparation.assets
        if not weight_files(assets.checkpoint):
            raise EnvironmentMissing(
                "the checkpoint that will be served is missing",
                where=str(assets.checkpoint),
                hint=request.choices.command(verb="prepare"),
            )
        fingerprints = {plan.scenario: self.fingerprint(plan, assets) for plan in request.scenarios}
        return package_calibration(request.submission, fingerprints, request.workspace, assets.checkpoint)

    def _package(self, selection: Selection, assets: Assets) -> Package:
        request = self.request
        chosen = [status.run.record for status in selection.run_keys if status.run and status.run.record]
        nodes = chosen[0].nodes if chosen else {}
        machine = merged([node.machine for node in nodes.values()]) if nodes else self.machine
        ecc = merged_ecc([node.ecc for node in nodes.values()]) if nodes else None
        if not nodes and not request.measures_this_host:
            machine, ecc = {}, UNTOLD
        selection = with_inferred(selection, request.choices.inferred)
        if checkout(request.workspace):
            self.panel.say("official scripts: scoring the logs, unless they were scored before; minutes for a data set")
        return package(request.submission, selection, machine, request.workspace, assets, ecc=ecc)

    def _prepare(self) -> Assets:
        """Download, train and quantize what is missing; check that all nodes of a cluster see it."""
        preparation = self.preparation
        if isinstance(preparation, PublishedPreparation):
            provide(preparation, self.request.choices.gpu, self.panel.stage)
        assets = prepare(preparation, self.panel.stage)
        if self.cluster:
            paths = [assets.checkpoint, assets.calibration, *filter(None, [assets.draft])]
            query_cluster(self.cluster.address, self.request.workspace.stage_log("nodes"), paths)
        return assets

    @property
    def preparation(self) -> Preparation:
        """What puts the benchmark's assets in place."""
        request = self.request
        return preparation_of(request.benchmark, request.workspace, request.samples("accuracy"))

    def unprepared(self) -> list[str]:
        """Stages of the preparation that are still to come."""
        return missing(self.preparation)

    def assets(self) -> Assets | None:
        """The assets, if they are all there."""
        return None if self.unprepared() else self.preparation.assets

    def required_assets(self) -> Assets:
        """The assets; an error says which are missing."""
        if stages := self.unprepared():
            name = self.request.benchmark.name
            raise EnvironmentMissing(
                f"{name} is not prepared",
                found=f"still to do: {', '.join(stages)}",
                hint=self.request.choices.command(verb="prepare"),
            )
        return self.preparation.assets

    def scorer(self, assets: Assets) -> Scorer:
        """What scores accuracy runs."""
        return Scorer(self.request.benchmark, self.request.variants, assets)

    def fingerprint(self, plan: ScenarioPlan, assets: Assets) -> dict[str, Any]:
        """What a run of `plan` would be a measurement of, now."""
        return fingerprint(
            plan.config,
            engine=self.request.choices.engine,
            checkpoint=checkpoint_digest(assets.checkpoint),
            draft=checkpoint_digest(assets.draft) if assets.draft and plan.config.draft_tokens else "",
            loadgen=loadgen_version(self.request.round),
            machine=self.machine,
            nodes=self.cluster.facts() if self.cluster else (),
        )

    def select(self, assets: Assets | None, *, anew: bool = False) -> Selection:
        """Which runs are done; none without the assets.

        Runs that could be made now count (`anew`: not repeated by `submit`), otherwise those of the newest fingerprint.
        """
        request = self.request
        if assets is None:
            nothing = Wanted(
                request.benchmark.name, request.profile.name, request.round.round, request.choices.division
            )
            return select([], request.choices.scenarios, request.tests, nothing)
        wanted = Wanted(
            benchmark=request.benchmark.name,
            profile=request.profile.name,
            round=request.round.round,
            division=request.choices.division,
            rehearsed=request.profile.rehearsed,
            fingerprints={plan.scenario: self.fingerprint(plan, assets) for plan in request.scenarios} if anew else {},
        )
        plans = {plan.scenario: plan for plan in request.scenarios}
        runs = [
            run
            for run in find_runs(request.workspace.logs, request.choices.system)
            if run.run_key.benchmark == request.benchmark.name
            and run.run_key.scenario in plans
            and run.run_key.test in request.tests
            and self._same_work(run, plans[run.run_key.scenario], assets)
        ]
        return select(runs, list(plans), request.tests, wanted)

    def _same_work(self, run: Run, plan: ScenarioPlan, assets: Assets) -> bool:
        """Whether a run had today's data set and sampling; its user.conf may be another."""
        if run.record is None:
            return True
        now = run_facts(self.request, plan, assets, run.run_key.test)
        return all(run.record.run_facts.get(key) == now[key] for key in _SAME_WORK)

    def announce(self) -> None:
        """Print the plan: what is to be prepared, every run, and how long it should last."""
        for stage in self.unprepared():
            self.panel.say(f"  to prepare: {stage}")
        total = 0.0
        for status in self.select(self.assets(), anew=True).run_keys:
            if status.run_key.test not in self.request.asked:
                continue
            view = self._view(status.run_key.scenario, status.run_key.test)
            total += 0 if status.done else view.predicted_s
            words = "done" if status.done else f"{view.total} samples, about {clock(view.predicted_s)}"
            reason = f" ({status.state_text}: {status.reason})" if status.run and not status.done else ""
            self.panel.say(f"  {status.run_key.scenario:13}{status.run_key.test:13}{words}{reason}")
        self.panel.say(f"about {clock(total)} of measuring; each scenario starts its engine once")

    def _view(self, scenario: str, test: str) -> RunView:
        plan = next(p for p in self.request.scenarios if p.scenario == scenario)
        rate = self.rates.get(scenario) or self._known_rate(plan)
        audit = self.request.audit_samples(test)
        return RunView(
            name=f"{scenario} {test}",
            total=issued(plan.load, test, audit),
            predicted_s=seconds(plan.load, test, rate, audit),
            limit=self.request.rules.latency_ms.get(scenario),
        )

    def _known_rate(self, plan: ScenarioPlan) -> float:
        """What this system reached before; what it is asked to reach while it never ran."""
        runs = find_runs(self.request.workspace.logs, self.request.choices.system)
        rates = [
            run.record.metrics["samples_per_second"]
            for run in runs
            if run.record
            and (run.run_key.benchmark, run.run_key.scenario) == (self.request.benchmark.name, plan.scenario)
            and "samples_per_second" in run.record.metrics
        ]
        if rates:
            return rates[-1]
        return plan.load.target_qps or 1 / plan.load.target_latency_s

    def _run_scenario(self, plan: ScenarioPlan, tests: Sequence[str], assets: Assets) -> list[Run]:
        scorer = self.scorer(assets)
        with self._pool(plan, assets) as pool:
            nodes = self.cluster.records() if self.cluster else {}
            context = ScenarioContext(self.request, plan, assets, scorer, self.fingerprint(plan, assets), pool, nodes)
            return [self.run_test(context, test) for test in tests]

    def run_test(self, context: ScenarioContext, test: str) -> Run:
        """Run `test` on a complete replica pool; repeat it once when a replica failed during the measurement."""
        run = self._execute_run(context, test)
        if run.state is not State.DEGRADED:
            return run
        self.panel.say("  the system was not whole meanwhile; once more when it is")
        anew = replace(context.request, started=dt.datetime.now(dt.UTC))
        return self._execute_run(replace(context, request=anew), test)

    @contextmanager
    def _pool(self, plan: ScenarioPlan, assets: Assets) -> Iterator[ReplicaPool]:
        request = self.request
        self.panel.say(f"{plan.scenario}: starting {plan.config.replicas} x {request.choices.engine}")
        placed, launcher = self._placed(plan)
        pool = start_pool(
            plan.config,
            engine=request.choices.engine,
            checkpoint=assets.checkpoint,
            calibration=assets.calibration,
            logs=request.log_folder / plan.scenario,
            cache=request.workspace.cache,
            report=self.panel.stage,
            placed=placed,
            launcher=launcher,
        )
        try:
            yield pool
        finally:
            pool.stop()

    def _placed(self, plan: ScenarioPlan) -> tuple[Placement, Launcher]:
        """What each replica gets, and what starts it."""
        if self.cluster:
            accelerated = self.request.choices.gpu != NO_ACCELERATOR
            ray = ray_launcher(self.cluster, plan.config, self.request.choices.engine, accelerated=accelerated)
            return ray.placed, ray
        devices = self._places(plan)[: len(process_names(plan.config, self.request.choices.engine))]
        return placement(devices, plan.config.harness_config.loadgen_cpus), launch

    def _places(self, plan: ScenarioPlan) -> list[dict[str, str]]:
        """What each replica sees of this machine's accelerators; servers that run already look after theirs."""
        name, config = self.request.choices.gpu, plan.config
        gpu = None if config.server_config.url else load_gpus(self.request.workspace).get(name)
        found = gpu_count(name, workspace=self.request.workspace) if gpu else 0
        return device_environments(gpu, found, os.environ, replicas=config.replicas, size=config.group)

    def _execute_run(self, context: ScenarioContext, test: str) -> Run:
        scenario = context.plan.scenario
        context.pool.await_restarts(self.panel.stage)
        self.panel.begin(self._view(scenario, test))
        try:
            run = execute_run(context, test, self)
        finally:
            self.panel.end()
        self.panel.say(describe_run(run))
        if run.record:
            found = run.record.prediction | run.record.metrics
            self.rates[scenario] = found.get("samples_per_second", self.rates.get(scenario, 0))
        return run

    def progress(self, body: Mapping[str, Any]) -> None:
        """A status line of LoadGen's process."""
        self.panel.progress(body)


def build_pipeline(request: Request, panel: Panel, cluster: Cluster | None) -> Pipeline:
    """A pipeline on this machine, or on the nodes of `cluster`."""
    if not cluster:
        return Pipeline(request, panel)
    return Pipeline(request, panel, merged([node.info.machine for node in cluster.nodes]), cluster)


def describe_run(run: Run) -> str:
    """How a run ended, in one line and its figures."""
    figures = ", ".join(f"{k} {v:,.2f}" for k, v in (run.record.metrics if run.record else {}).items())
    lines = [f"{run.run_key.scenario} {run.run_key.test}: {run.state}" + (f", {figures}" if figures else "")]
    return "\n".join([*lines, *(f"  {reason}" for reason in run.reasons)])


def check_tree(tree: Path, round_name: str) -> tuple[list[Finding], list[OfficialVerdict]]:
    """Our findings, and the official checker's verdicts where there is a checkout of it."""
    inference = checkout(Workspace())
    verdicts = run_official(tree, round_name, inference) if inference else []
    return check(tree, load_round(round_name)), verdicts
