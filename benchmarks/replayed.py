"""Runs of the replay engine: LoadGen, replica client and replicas as usual, with an engine that computes nothing."""

import datetime as dt
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from harness_llm.config.assets import Assets
from harness_llm.config.engines import REPLAY
from harness_llm.config.options import Options
from harness_llm.config.plan import resolve
from harness_llm.errors import RunFailed
from harness_llm.evaluate.run_result import Scorer
from harness_llm.loadgen.logs import DETAIL, parse_detail
from harness_llm.loadgen.versions import loadgen_folder
from harness_llm.paths import Workspace
from harness_llm.pipeline.run import ScenarioContext, execute_run
from harness_llm.protocol.token_store import write_store
from harness_llm.replicas.engines.replay import Lengths
from harness_llm.replicas.local import start_pool
from harness_llm.runs.fingerprint import SOURCE
from harness_llm.runs.program_source import MEASURING
from harness_llm.runs.record import State

SAMPLES = 1000
TOKENS = 290  # per answer; published mean of llama2-70b
MEAN_PROMPT, SPREAD, LONGEST = 294, 0.9, 1024
MIB = 2**20
# With answers that take no time, only the harness's own time is measured.
AT_ONCE = (
    "replay_config.prefill_tokens_per_s=0",
    "replay_config.step_s=0",
    "replay_config.step_s_per_sequence=0",
    f"replay_config.output_tokens={TOKENS}",
    "replay_config.output_spread=0",
)


@dataclass(frozen=True)
class Figures:
    """LoadGen's measurements of one run; latencies in ms at the median and the 99th percentile.

    Attributes:
        queries_per_s: completed queries.
        cpu_s: of LoadGen's process, including its start.
        grown_mib: peak resident memory of LoadGen's process minus that before the first query.
    """

    target_qps: float
    queries: int
    seconds: float
    queries_per_s: float
    tokens_per_s: float
    ttft_ms: tuple[float, float] | None
    tpot_ms: tuple[float, float] | None
    valid: bool
    reasons: list[str] = field(default_factory=list)
    cpu_s: float = 0.0
    grown_mib: float = 0.0


class NullSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Specification of a run without harness: user.conf and its model, number of samples, tokens per answer."""

    user_conf: str
    output: str
    model: str
    samples: int
    tokens: int


def write_assets(folder: Path) -> Assets:
    """Write a data set with llama2-70b's prompt lengths; there is no checkpoint."""
    rng = np.random.default_rng(0)
    lengths = Lengths(MEAN_PROMPT, SPREAD, LONGEST)
    prompts = [rng.integers(0, 32_000, lengths.at(quantile), dtype=np.int32) for quantile in rng.random(SAMPLES)]
    write_store(folder / "evaluation", prompts)
    return Assets(folder, folder, {"evaluation": folder / "evaluation"}, folder / "evaluation")


@contextmanager
def replay_bench(folder: Path, scenario: str, replicas: int, *sets: str) -> Iterator[ScenarioContext]:
    """Start a pool of `replicas` with the replay engine, in one process unless `sets` override it."""
    conf = folder / "user.conf"
    conf.write_text("llama2-70b.Offline.target_qps = 1\nllama2-70b.Server.target_qps = 1\n")
    options = Options(
        model="llama2-70b",
        gpu="mi300x",
        division="open",
        engine=REPLAY,
        scenarios=(scenario,),
        profile="smoke",
        system_name="make-bench",
        total_sample_count=SAMPLES,
        user_conf=conf,
        set=(f"harness_config.replicas={replicas}", *sets),
    )
    request = resolve(options, Workspace())
    request = replace(request, profile=request.profile.model_copy(update={"probe_s": 0}))
    [plan] = request.scenarios
    assets = write_assets(folder)
    pool = start_pool(
        plan.config,
        engine=REPLAY,
        checkpoint=assets.checkpoint,
        calibration=assets.calibration,
        logs=request.log_folder,
        cache=request.workspace.cache,
        report=lambda _: None,
    )
    try:
        scorer = Scorer(request.benchmark, request.variants, assets)
        yield ScenarioContext(request, plan, assets, scorer, {SOURCE: MEASURING.at_start}, pool)
    finally:
        pool.stop()


class _Progress:
    """Keeps the last status of LoadGen's process by event."""

    def __init__(self) -> None:
        self.last: dict[str, Mapping[str, Any]] = {}

    def progress(self, body: Mapping[str, Any]) -> None:
        self.last[body["event"]] = body


def with_load(bench: ScenarioContext, qps: float, *, seconds: float = 0.5, queries: int = 0) -> ScenarioContext:
    """Return the context for a new run with another load than in user.conf."""
    plan, samples = bench.plan, bench.request.samples("performance")
    load: dict[str, int | float] = {
        "target_qps": qps,
        "min_duration": round(seconds * 1000),
        "min_query_count": max(queries, samples),
        "performance_sample_count_override": samples,
    }
    confs = {test: conf.for_run(plan.loadgen_model, plan.load.scenario, load) for test, conf in plan.confs.items()}
    load_plan = replace(plan.load, target_qps=qps, min_duration_s=seconds, min_query_count=max(queries, samples))
    time.sleep(1)  # the name of a run's folder has a resolution of 1 s, and a run may take less
    request = replace(bench.request, started=dt.datetime.now(dt.UTC))
    return replace(bench, request=request, plan=replace(plan, confs=confs, load=load_plan))


def _children_cpu_s() -> float:
    """Return the CPU time of children that have exited: LoadGen's processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(bench: ScenarioContext, qps: float, *, seconds: float = 0.5, queries: int = 0) -> Figures:
    """Execute a run of at least `seconds` and `queries` through the harness.

    Raises:
        RunFailed: the run did not finish.
    """
    progress, before = _Progress(), _children_cpu_s()
    run = execute_run(with_load(bench, qps, seconds=seconds, queries=queries), "performance", progress)
    if run.state not in (State.VALID, State.INVALID):
        raise RunFailed("the run did not finish", where=str(run.path), found="; ".join(run.reasons))
    start, end = progress.last["started"], progress.last["finished"]
    figures = read_figures(run.path, qps)
    return replace(
        figures,
        reasons=list(run.reasons),
        cpu_s=_children_cpu_s() - before,
        grown_mib=(end["peak_rss_bytes"] - start["rss_bytes"]) / MIB,
    )


def measure_null(bench: ScenarioContext, qps: float, *, seconds: float, folder: Path) -> Figures:
    """Execute the same load with LoadGen alone, in its own process on the same cores."""
    loaded = with_load(bench, qps, seconds=seconds)
    output = folder / f"null-{loaded.request.started:%H%M%S%f}"
    output.mkdir()
    (output / "user.conf").write_text(loaded.plan.confs["performance"].render())
    spec = NullSpec(
        user_conf=str(output / "user.conf"),
        output=str(output),
        model=loaded.plan.loadgen_model,
        samples=SAMPLES,
        tokens=TOKENS,
    )
    (output / "spec.json").write_bytes(msgspec.json.encode(spec))
    command = ["taskset", "-c", ",".join(map(str, bench.pool.loadgen_cpus))]
    subprocess.run(
        [*command, sys.executable, "-m", "benchmarks.null_sut", str(output / "spec.json")],
        env=os.environ | {"PYTHONPATH": f"{loadgen_folder(bench.request.round)}:{Path.cwd()}"},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return read_figures(output, qps)


def read_figures(run: Path, qps: float) -> Figures:
    """Read LoadGen's log in `run`."""
    log = parse_detail(run / DETAIL)

    def pair(read: Any) -> tuple[float, float] | None:
        values = (read(50), read(99))
        return None if None in values else values

    return Figures(
        target_qps=qps,
        queries=int(log.number("generated_query_count") * log.number("generated_samples_per_query")),
        seconds=log.duration_s,
        queries_per_s=log.samples_per_second,
        tokens_per_s=log.tokens_per_second or 0.0,
        ttft_ms=pair(log.ttft_ms),
        tpot_ms=pair(log.tpot_ms),
        valid=log.valid,
    )
