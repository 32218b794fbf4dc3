"""One run of one cell: LoadGen's process against a warm fleet, then the verdict, then run.json."""

import datetime as dt
import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from harness_llm.assets import Assets
from harness_llm.benchmarks import Sampling
from harness_llm.compliance.audit import audit_config
from harness_llm.datasets.store import open_store
from harness_llm.engines import ENGINES, Counters
from harness_llm.engines.counters import caching_departures, growth
from harness_llm.engines.identity import identity_departures
from harness_llm.engines.kv_cache import KvCache, kv_cache_metrics, preemption_notes
from harness_llm.errors import GateFailed, HarnessError, RunFailed
from harness_llm.fleet.fleet import Fleet
from harness_llm.host import read_host
from harness_llm.loadgen.logs import ACCURACY
from harness_llm.loadgen.probe import ProbeSpec
from harness_llm.loadgen.settings import expected_settings
from harness_llm.loadgen.spec import SPEC, CellSpec
from harness_llm.loadgen.versions import loadgen_folder
from harness_llm.outcome import Outcome, Scorer, after_losses, gather, judge_compliance, judge_performance
from harness_llm.processes import start
from harness_llm.request import Request, ScenarioPlan
from harness_llm.runs import Cell, NodeRecord, Run, RunRecord, State, finish, load_run, open_run
from harness_llm.subject import source_digest
from harness_llm.supervision import Stall, Supervision, Watcher

USER_CONF = "user.conf"
AUDIT_CONFIG = "audit.config"
CONFIG = "config.yaml"

# A run attaches to the replicas several times: for its probe, and for itself.
_ATTACHMENTS = 16
_generations = itertools.count(1, _ATTACHMENTS)
_KvCaches = list[tuple[KvCache | None, KvCache | None]]


@dataclass(frozen=True)
class Bench:
    """What all cells of a scenario share."""

    request: Request
    plan: ScenarioPlan
    assets: Assets
    scorer: Scorer
    subject: dict[str, Any]
    fleet: Fleet
    nodes: dict[str, NodeRecord] = field(default_factory=dict)


def run_cell(bench: Bench, test: str, watcher: Watcher) -> Run:
    """Run `test` and record it; an error is recorded too, then raised."""
    request, plan = bench.request, bench.plan
    cell = Cell(request.benchmark.name, plan.scenario, test)
    path = request.log_folder / cell.scenario / cell.test
    with open_run(path):
        started, host = dt.datetime.now(dt.UTC), read_host()
        _write_inputs(bench, test, path)
        attempt = _Attempt(bench, cell, path, watcher)

        def record(outcome: Outcome) -> None:
            finish(path, _record(bench, cell, outcome, attempt, started=started, host=host))

        try:
            outcome = attempt.make()
            _require_source(bench)
        except HarnessError as error:
            record(Outcome(State.FAILED, [_line(error), *attempt.losses]))
            raise
        record(outcome)
    return load_run(path)


@dataclass
class _Attempt:
    """LoadGen's process, once, and what came of it.

    Attributes:
        counted: what the engines counted meanwhile of what may not happen; None where one cannot tell.
        kv_cache: metrics of the replicas' KV caches, preemptions among them; empty where unknown.
        losses: what became of replicas, one sentence each.
        prediction: of the probe; empty without one.
    """

    bench: Bench
    cell: Cell
    path: Path
    watcher: Watcher
    counted: Counters | None = field(default_factory=dict)
    kv_cache: dict[str, float] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    prediction: dict[str, float] = field(default_factory=dict)

    def progress(self, body: Mapping[str, Any]) -> None:
        """A status line of LoadGen's process; keeps the probe's prediction."""
        if body["event"] == "probed":
            self.prediction = body["prediction"] or {}
        self.watcher.progress(body)

    def make(self) -> Outcome:
        """Load and judge; a run that the probe stops is INVALID, and says what to set."""
        try:
            self._load()
        except GateFailed as error:
            outcome = Outcome(State.INVALID, [_line(error)])
        else:
            outcome = _judge(self.bench, self.cell.test, self.path)
        return after_losses(outcome, self.cell.test, self.losses)

    def _load(self) -> None:
        bench, harness = self.bench, self.bench.plan.config.harness_config
        spec = self.path / SPEC
        spec.write_bytes(msgspec.json.encode(_spec(bench, self.cell, self.path)))
        environment = {"PYTHONPATH": str(loadgen_folder(bench.request.round))}
        log = self.path / "loadgen.log"
        child = start("harness_llm.loadgen.client", [str(spec)], name="LoadGen", log=log, environment=environment)
        survives = harness.on_replica_loss == "reissue"
        # A replica that stalls is lost first: the run ends where that did not help.
        supervision = Supervision(child, bench.fleet, self, survives, Stall(2 * harness.stall_timeout_s))
        try:
            finished = supervision.follow()
            self.counted = growth(finished["counters"])
            self.kv_cache = kv_cache_metrics(msgspec.convert(finished["kv_caches"], _KvCaches))
        finally:
            child.stop(patience_s=1)
            self.losses = supervision.losses


def _require_source(bench: Bench) -> None:
    """LoadGen's process imports the package anew, so a run is of the source only that stood still meanwhile."""
    if source_digest() != bench.subject["harness_llm"]:
        raise RunFailed("the source of harness_llm was changed during the run", hint="run it again")


def _line(error: HarnessError) -> str:
    return " ".join(str(error).split())


def _write_inputs(bench: Bench, test: str, path: Path) -> None:
    (path / USER_CONF).write_text(bench.plan.confs[test].render())
    config = bench.plan.config.model_dump(mode="json")
    (path / CONFIG).write_text(yaml.safe_dump(config, sort_keys=False))
    if test in bench.request.round.compliance:
        (path / AUDIT_CONFIG).write_text(audit_config(bench.request.round.compliance[test]))


def _spec(bench: Bench, cell: Cell, path: Path) -> CellSpec:
    request, plan = bench.request, bench.plan
    values = {name.key: value for name, value in plan.confs[cell.test].values.items()}
    return CellSpec(
        cell=str(cell),
        generation=next(_generations),
        scenario=plan.load.scenario,
        model=plan.loadgen_model,
        mode="accuracy" if cell.test == "accuracy" else "performance",
        output=str(path),
        user_conf=str(path / USER_CONF),
        # LoadGen reads an audit.config that happens to lie in its folder: it is always told where to look.
        audit_config=str(path / AUDIT_CONFIG),
        endpoints=bench.fleet.endpoints,
        keys=str(bench.fleet.keys),
        stream=plan.stream,
        credit=plan.config.credit,
        silence_s=plan.config.harness_config.heartbeat_timeout_s,
        stall_s=plan.config.harness_config.stall_timeout_s,
        sampling=sampling_of(request, plan, cell.test).model_dump(mode="json"),
        store=str(bench.assets.store(cell.test)),
        samples=request.samples(cell.test),
        load=plan.load,
        target_key=plan.target_key,
        probe=_probe(bench) if cell.test == "performance" else None,
        expected=expected_settings(
            values,
            scenario=plan.scenario,
            loadgen_scenario=plan.load.scenario,
            rules=request.rules,
            round_=request.round,
        ),
        cpus=bench.fleet.loadgen_cpus,
    )


def _probe(bench: Bench) -> ProbeSpec | None:
    request, config = bench.request, bench.plan.config
    if not request.profile.probe_s or not ENGINES[request.choices.engine].steps:
        return None
    sampling = sampling_of(request, bench.plan, "performance")
    return ProbeSpec(
        store=str(bench.assets.calibration),
        limit_s=request.profile.probe_s,
        batch=1 if bench.plan.load.scenario == "SingleStream" else config.credit.batch,
        step_tokens=int(config.llm_config.get("max_num_batched_tokens") or 0),
        max_model_len=int(config.llm_config["max_model_len"]),
        output=bench.scorer.output_tokens(sampling),
        longest=sampling.max_tokens,
    )


def sampling_of(request: Request, plan: ScenarioPlan, test: str) -> Sampling:
    """How `test` chooses tokens, --set included."""
    return plan.config.sampling.changed(request.benchmark.sampling_of.get(test, {}))


def _judge(bench: Bench, test: str, path: Path) -> Outcome:
    if test == "performance":
        return judge_performance(path)
    if test == "accuracy":
        return bench.scorer.judge(path, bench.request.samples(test), enforce=bench.request.enforce_accuracy)
    request, samples = bench.request, bench.request.samples(test)
    rules = request.round.compliance[test]
    log, score = path / ACCURACY, bench.scorer.score
    evidence = gather(log, bench.plan.scenario, request.benchmark, rules, lambda: score(log, test, samples))
    issued = request.audit_samples(test)
    return judge_compliance(path, test, rules, evidence, issued=issued, enforce=request.enforce_accuracy)


def cell_facts(request: Request, plan: ScenarioPlan, assets: Assets, test: str) -> dict[str, Any]:
    """Data set, sampling, user.conf and audit settings of a run of `test`."""
    audit = request.round.compliance.get(test)
    return {
        "dataset": open_store(assets.store(test)).digest,
        "samples": request.samples(test),
        "profile": request.profile.model_dump(mode="json"),
        "accuracy": request.benchmark.accuracy.model_dump(mode="json"),
        "sampling": sampling_of(request, plan, test).model_dump(mode="json"),
        "departures": plan.departures,
        "user_conf": plan.confs[test].render(),
        "audit": audit.audit if audit else {},
    }


def _record(
    bench: Bench,
    cell: Cell,
    outcome: Outcome,
    attempt: _Attempt,
    *,
    started: dt.datetime,
    host: dict[str, str],
) -> RunRecord:
    request = bench.request
    choices = request.choices
    facts = cell_facts(request, bench.plan, bench.assets, cell.test)
    seen = caching_departures(attempt.counted, bench.plan.config.draft_tokens) + identity_departures(
        bench.subject.get("servers", [])
    )
    notes = outcome.notes + preemption_notes(attempt.kv_cache, bench.plan.config.credit.batch)
    measured = attempt.kv_cache if cell.test == "performance" else {}
    return RunRecord(
        state=outcome.state,
        reasons=outcome.reasons + notes + [f"not for closed: {line}" for line in seen],
        **asdict(cell),
        system=choices.system,
        round=request.round.round,
        division=choices.division,
        profile=request.profile.name,
        engine=choices.engine,
        command=choices.command(cell.scenario),
        started=started,
        ended=dt.datetime.now(dt.UTC),
        subject=bench.subject,
        host=host,
        nodes=bench.nodes,
        cell_facts=facts | {"departures": facts["departures"] + seen, "counters": attempt.counted},
        metrics=outcome.metrics | measured,
        prediction=_with_error(attempt.prediction, outcome, bench.plan.load.scenario),
    )


def _with_error(prediction: dict[str, float], outcome: Outcome, scenario: str) -> dict[str, float]:
    """`prediction` with the relative error of the run's throughput, which a Server's arrivals would hide."""
    duration_s = outcome.metrics.get("duration_s")
    if not prediction or not duration_s or scenario == "Server":
        return prediction
    return prediction | {"error": duration_s / prediction["run_s"] - 1}
