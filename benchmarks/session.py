"""One bench: both arms started and warm, then pair after pair."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from benchmarks.arms import Raw, measure_harness
from benchmarks.measurement import Measurement, Pair
from harness_llm.config.assets import prepare
from harness_llm.config.load import issued
from harness_llm.config.options import Options
from harness_llm.config.plan import resolve
from harness_llm.config.request import Request
from harness_llm.evaluate.run_result import Scorer
from harness_llm.paths import Workspace
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.run import ScenarioContext
from harness_llm.pipeline.submit import Pipeline
from harness_llm.replicas.local import start_pool

COMMAND = "make bench"
# The runs are in build/logs, under a system of this name.
DEMO = Options(system_name="make-bench", model="demo", profile="smoke")


def demo_request(
    scenario: str = "Offline", replicas: int = 1, *, options: Options = DEMO, sets: Sequence[str] = ()
) -> Request:
    """Return one scenario of the smoke profile, without a probe."""
    settings = (f"harness_config.replicas={replicas}", *sets)
    request = resolve(replace(options, scenarios=(scenario,), set=settings), Workspace())
    return replace(request, profile=request.profile.model_copy(update={"probe_s": 0}))


@contextmanager
def demo_bench(request: Request, panel: Panel) -> Iterator[ScenarioContext]:
    """The replica pool of the demo, warmed up."""
    plan = request.scenarios[0]
    pipeline = Pipeline(request, panel)
    assets = prepare(pipeline.preparation, panel.stage)
    fingerprint = pipeline.fingerprint(plan, assets)
    scorer = Scorer(request.benchmark, request.variants, assets)
    pool = start_pool(
        plan.config,
        engine=request.options.engine,
        checkpoint=assets.checkpoint,
        calibration=assets.calibration,
        logs=request.log_folder,
        cache=request.workspace.cache,
        tell=panel.stage,
    )
    try:
        yield ScenarioContext(request, plan, assets, scorer, fingerprint, pool)
    finally:
        pool.stop()


@contextmanager
def warm_arms(request: Request, panel: Panel) -> Iterator[tuple[ScenarioContext, Raw]]:
    """The replica pool and raw vLLM, both loaded and warmed up on the same cores."""
    with demo_bench(request, panel) as bench:
        raw = Raw(bench)
        try:
            yield bench, raw
        finally:
            raw.stop()


def measure_pairs(bench: ScenarioContext, raw: Raw, count: int, seconds: float) -> Iterator[Pair]:
    """`count` pairs in which each arm should run `seconds` or a little more; the arms take turns in going first.

    A first pair over the data set once is thrown away: it warms both arms up and tells how fast they are.
    """
    pair = _measure_pair(bench, raw, bench.request.samples("performance"), harness_first=False)
    for number in range(count):
        rate = max(_rate(pair.harness), _rate(pair.raw))
        load = replace(bench.plan.load, min_duration_s=seconds, target_qps=rate)
        pair = _measure_pair(bench, raw, issued(load, "performance"), harness_first=number % 2 == 0)
        yield pair


def _measure_pair(bench: ScenarioContext, raw: Raw, samples: int, *, harness_first: bool) -> Pair:
    [replica] = bench.pool.replicas
    if harness_first:
        harness = measure_harness(bench, samples, raw.child)
        return Pair(harness, raw.measure(samples, replica))
    measured = raw.measure(samples, replica)
    return Pair(measure_harness(bench, samples, raw.child), measured)


def _rate(measured: Measurement) -> float:
    return measured.samples / measured.seconds
