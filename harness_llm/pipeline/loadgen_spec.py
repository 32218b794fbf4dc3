"""Specification of a run for LoadGen's process: its settings, its cores, and the probe before it."""

from collections.abc import Callable
from pathlib import Path

from harness_llm.config.assets import Assets
from harness_llm.config.benchmark import Sampling
from harness_llm.config.engines import ENGINES
from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.loadgen.prediction import OutputTokens
from harness_llm.loadgen.probe import ProbeSpec
from harness_llm.loadgen.replica_client import IDLE_TIMEOUT_S
from harness_llm.loadgen.run_spec import RunSpec
from harness_llm.loadgen.settings import expected_settings
from harness_llm.pipeline.run_facts import sampling_of
from harness_llm.replicas.pool import ReplicaPool
from harness_llm.runs.record import RunKey

USER_CONF = "user.conf"
AUDIT_CONFIG = "audit.config"


def loadgen_spec(
    request: Request,
    plan: ScenarioPlan,
    assets: Assets,
    pool: ReplicaPool,
    *,
    run_key: RunKey,
    path: Path,
    generation: int,
    probe: ProbeSpec | None,
    profiled: bool,
    records: bool,
) -> RunSpec:
    """Return the specification of a run.

    Args:
        path: directory of the run.
        generation: of the run's messages; higher than in earlier runs on `pool`.
        profiled: whether a profiler records a part of the run.
        records: whether times per query and second are recorded.
    """
    harness = plan.config.harness_config
    return RunSpec(
        run_key=str(run_key),
        generation=generation,
        scenario=plan.load.scenario,
        model=plan.loadgen_model,
        mode="accuracy" if run_key.test == "accuracy" else "performance",
        output=str(path),
        user_conf=str(path / USER_CONF),
        # Always set: LoadGen would read an audit.config of its working directory.
        audit_config=str(path / AUDIT_CONFIG),
        endpoints=pool.endpoints,
        keys=str(pool.keys),
        stream=plan.stream,
        in_flight_limit=plan.config.in_flight_limit,
        # A replica in the process of its engine sends no heartbeat while it writes a trace.
        heartbeat_timeout_s=harness.stall_timeout_s if profiled else harness.heartbeat_timeout_s,
        stall_timeout_s=harness.stall_timeout_s,
        idle_timeout_s=harness.stall_timeout_s if profiled else IDLE_TIMEOUT_S,
        sampling=sampling_of(request, plan, run_key.test).model_dump(mode="json"),
        store=str(assets.store(run_key.test)),
        samples=request.samples(run_key.test),
        load=plan.load,
        target_key=plan.target_key,
        probe=probe,
        expected=_expected_settings(request, plan, run_key.test),
        cpus=pool.loadgen_cpus,
        limits_ms=limit.model_dump() if (limit := request.rules.latency_ms.get(plan.scenario)) else None,
        records=records,
    )


def _expected_settings(request: Request, plan: ScenarioPlan, test: str) -> dict[str, int | float]:
    return expected_settings(
        {name.key: value for name, value in plan.confs[test].values.items()},
        scenario=plan.scenario,
        loadgen_scenario=plan.load.scenario,
        rules=request.rules,
        round_=request.round,
    )


def probe_spec(
    request: Request, plan: ScenarioPlan, assets: Assets, output_tokens: Callable[[Sampling], OutputTokens]
) -> ProbeSpec | None:
    """Return the probe before a performance run; None if the profile or the engine has none.

    Args:
        output_tokens: returns the expected tokens per sample.
    """
    if not request.profile.probe_s or not ENGINES[request.options.engine].steps:
        return None
    config, sampling = plan.config, sampling_of(request, plan, "performance")
    return ProbeSpec(
        store=str(assets.calibration),
        limit_s=request.profile.probe_s,
        batch=1 if plan.load.scenario == "SingleStream" else config.in_flight_limit.batch,
        step_tokens=int(config.llm_config.get("max_num_batched_tokens") or 0),
        max_model_len=int(config.llm_config["max_model_len"]),
        output=output_tokens(sampling),
        longest=sampling.max_tokens,
    )
