"""One run: LoadGen's process on a warm replica pool, and run.json."""

import datetime as dt
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from harness_llm.config.assets import Assets
from harness_llm.config.load import issued
from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.errors import GateFailed, HarnessError
from harness_llm.evaluate.run_result import Scorer
from harness_llm.loadgen.run_spec import SPEC
from harness_llm.loadgen.versions import loadgen_folder
from harness_llm.pipeline.device_records import DeviceRecords
from harness_llm.pipeline.judgement import judge_run, require_measuring_source
from harness_llm.pipeline.loadgen_spec import AUDIT_CONFIG, USER_CONF, loadgen_spec, probe_spec
from harness_llm.pipeline.profile_window import ProfileWindow
from harness_llm.pipeline.profiling import Profiling
from harness_llm.pipeline.run_facts import at_default, run_facts
from harness_llm.pipeline.run_monitor import RunMonitor, Stall, Watcher
from harness_llm.protocol.child_processes import start
from harness_llm.protocol.counters import Counters, caching_violations, growth
from harness_llm.protocol.kv_cache import KvCache, kv_cache_metrics, preemption_notes
from harness_llm.replicas.pool import ReplicaPool
from harness_llm.runs.record import VERSION, NodeRecord, Run, RunKey, RunRecord, State, begin, finish, open_run
from harness_llm.runs.server_identity import identity_violations
from harness_llm.runs.stored_source import STORED

CONFIG = "config.yaml"

# A run attaches to the replicas several times: for the probe, and for the measurement.
_ATTACHMENTS = 16
# After a failure, LoadGen's process writes its records before it exits.
_RECORDS_S = 10.0
# LoadGen's process sends no status message while it attaches to the replicas and probes them.
_PREPARATION_S = 300.0
_generations = itertools.count(1, _ATTACHMENTS)
_KvCaches = list[tuple[KvCache | None, KvCache | None]]


@dataclass(frozen=True)
class ScenarioContext:
    """What all runs of a scenario share: settings, assets and the replica pool.

    Attributes:
        nodes: reads the machines of the next run; benchmarks record none.
        records: whether runs record queries, replicas and devices; benchmarks measure the cost.
        loadgen: module of LoadGen's process.
        profiling: of --profile-window.
        source: archive of the source, which runs store; benchmarks store none.
    """

    request: Request
    plan: ScenarioPlan
    assets: Assets
    scorer: Scorer
    fingerprint: dict[str, Any]
    pool: ReplicaPool
    nodes: Callable[[], dict[str, NodeRecord]] = dict
    records: bool = True
    loadgen: str = "harness_llm.loadgen.process"
    profiling: Profiling | None = None
    source: bytes = b""


def execute_run(context: ScenarioContext, test: str, watcher: Watcher) -> Run:
    """Run `test`, write its record and judge it; an error is recorded, and then raised."""
    run_key = RunKey(context.request.benchmark.name, context.plan.scenario, test)
    path = context.request.log_folder / run_key.scenario / run_key.test
    total = issued(context.plan.load, "performance")
    window = ProfileWindow(context.profiling, total, context.pool) if context.profiling else None
    with open_run(path):
        attempt = _Attempt(context, run_key, path, watcher, window, context.nodes())
        begin(path, attempt.record(State.RUNNING))
        _write_inputs(context, test, path)
        try:
            require_measuring_source(context.fingerprint)
            profiled = attempt.load()
            require_measuring_source(context.fingerprint)
        except GateFailed as error:  # the target was refused before LoadGen's end: its log is not complete
            return attempt.finish(State.INVALID, [error.line])
        except HarnessError as error:
            attempt.finish(State.FAILED, [error.line])
            raise
        run = attempt.finish(State.PROFILED if profiled else State.MEASURED, profiled)
    return judge_run(run, context.request, context.plan, context.scorer)


@dataclass
class _Attempt:
    """One execution of LoadGen's process, and what it reported.

    Attributes:
        nodes: the machines of the run.
        counted: growth of the engines' counters of forbidden caching; None if an engine reports none.
        kv_cache: metrics of the replicas' KV caches, such as preemptions; empty if unknown.
        losses: failures and restarts of replicas, one sentence each.
        prediction: of the probe; empty without one.
    """

    context: ScenarioContext
    run_key: RunKey
    path: Path
    watcher: Watcher
    window: ProfileWindow | None
    nodes: dict[str, NodeRecord]
    counted: Counters | None = field(default_factory=dict)
    kv_cache: dict[str, float] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    prediction: dict[str, float] = field(default_factory=dict)
    _devices: DeviceRecords = field(default_factory=DeviceRecords)
    _started: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))

    def progress(self, body: Mapping[str, Any]) -> None:
        """Take a status message of LoadGen's process; keep the probe's prediction."""
        if body["event"] == "probed":
            self.prediction = body["prediction"] or {}
        self._devices.progress(body)
        if self.window:
            self.window.progress(body)
        self.watcher.progress({**body, "devices": self._devices.latest()})

    def load(self) -> list[str]:
        """Run LoadGen; returns what was profiled, empty without a window."""
        with self._devices.recording(self.path) if self.context.records else nullcontext():
            self._load()
        return [self.window.finish(self.path)] if self.window else []

    def _load(self) -> None:
        context, harness = self.context, self.context.plan.config.harness_config
        spec = self._write_spec()
        environment = {"PYTHONPATH": str(loadgen_folder(context.request.round))}
        log = self.path / "loadgen.log"
        child = start(context.loadgen, [str(spec)], name="LoadGen", log=log, environment=environment)
        survives = harness.on_replica_failure == "requeue"
        # A stalled replica fails after stall_timeout_s; the run ends if no query completes after that.
        stall = Stall(2 * harness.stall_timeout_s, time.monotonic() + _PREPARATION_S)
        run_monitor = RunMonitor(child, context.pool, self, survives, stall)
        try:
            finished = run_monitor.follow()
            self.counted = growth(finished["counters"])
            self.kv_cache = kv_cache_metrics(msgspec.convert(finished["kv_caches"], _KvCaches))
        finally:
            child.stop(_RECORDS_S)
            self.losses = run_monitor.losses

    def _write_spec(self) -> Path:
        context, file = self.context, self.path / SPEC
        request, plan, assets = context.request, context.plan, context.assets
        performs = self.run_key.test == "performance"
        spec = loadgen_spec(
            request,
            plan,
            assets,
            context.pool,
            run_key=self.run_key,
            path=self.path,
            generation=next(_generations),
            probe=probe_spec(request, plan, assets, context.scorer.output_tokens) if performs else None,
            profiled=context.profiling is not None,
            records=context.records,
        )
        file.write_bytes(msgspec.json.encode(spec))
        return file

    def finish(self, state: State, reasons: list[str]) -> Run:
        """Write the record; failed replicas make a measurement DEGRADED, and are notes of an accuracy run."""
        plan, test = self.context.plan, self.run_key.test
        notes: list[str] = []
        if state is State.FAILED:
            reasons = reasons + self.losses
        elif test == "accuracy":
            notes = self.losses
        elif self.losses:
            state, reasons = State.DEGRADED, self.losses + reasons
        seen = caching_violations(self.counted, plan.config.draft_tokens)
        seen += identity_violations(self.context.fingerprint.get("servers", []))
        notes = notes + preemption_notes(self.kv_cache, plan.config.in_flight_limit.batch)
        notes += [f"not for closed: {line}" for line in seen]
        return finish(self.path, self.record(state, reasons, notes, seen))

    def record(
        self, state: State, reasons: Sequence[str] = (), notes: Sequence[str] = (), violations: Sequence[str] = ()
    ) -> RunRecord:
        """The record of the run as it is now; `violations` are those seen in the run."""
        request, plan, test = self.context.request, self.context.plan, self.run_key.test
        facts = run_facts(request, plan, self.context.assets, test)
        return RunRecord(
            version=VERSION,
            state=state,
            reasons=[*reasons],
            notes=[*notes],
            **asdict(self.run_key),
            system=request.options.system_name,
            round=request.round.round,
            division=request.options.division,
            profile=request.profile.name,
            engine=request.options.engine,
            command=request.options.command(plan.scenario),
            started=self._started,
            ended=dt.datetime.now(dt.UTC),
            fingerprint=self.context.fingerprint,
            nodes=self.nodes,
            run_facts=facts | {"violations": [*facts["violations"], *violations], "counters": self.counted},
            at_default=at_default(request, plan, test),
            metrics=self.kv_cache if test == "performance" else {},
            prediction=self.prediction,
        )


def _write_inputs(context: ScenarioContext, test: str, path: Path) -> None:
    if context.source:
        (path / STORED).write_bytes(context.source)
    (path / USER_CONF).write_text(context.plan.confs[test].render())
    config = context.plan.config.model_dump(mode="json")
    (path / CONFIG).write_text(yaml.safe_dump(config, sort_keys=False))
    if test in context.request.round.compliance:
        (path / AUDIT_CONFIG).write_text(context.request.round.compliance[test].audit_config)
