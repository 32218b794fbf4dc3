"""Session of a benchmark: both arms started and warmed up, then pairs of runs."""

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
# The runs are stored with the others, under this system name.
DEMO = Options(system_name="make-bench", model="demo", profile="smoke")


def demo_request(
    scenario: str = "Offline", replicas: int = 1, *, options: Options = DEMO, sets: Sequence[str] = ()
) -> Request:
    """Return a request of one scenario with the smoke profile's sample count and no probe."""
    settings = (f"harness_config.replicas={replicas}", *sets)
    request = resolve(replace(options, scenarios=(scenario,), set=settings), Workspace())
    return replace(request, profile=request.profile.model_copy(update={"probe_s": 0}))


@contextmanager
def demo_bench(request: Request, panel: Panel) -> Iterator[ScenarioContext]:
    """Start the replica pool of the demo; it is warmed up."""
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
        report=panel.starting,
    )
    try:
        yield ScenarioContext(request, plan, assets, scorer, fingerprint, pool)
    finally:
        pool.stop()


@contextmanager
def warm_arms(request: Request, panel: Panel) -> Iterator[tuple[ScenarioContext, Raw]]:
    """Start the replica pool and raw vLLM, both loaded and warmed up on the same cores."""
    with demo_bench(request, panel) as bench:
        raw = Raw(bench)
        try:
            yield bench, raw
        finally:
            raw.stop()


def measure_pairs(bench: ScenarioContext, raw: Raw, count: int, seconds: float) -> Iterator[Pair]:
    """Measure `count` pairs of about `seconds` per arm; the arms alternate in running first.

    A first pair over the data set is discarded: it warms up both arms and measures their rates.
    """
    pair = _measure_pair(bench, raw, bench.request.samples("performance"), harness_first=False)
    for number in range(count):
        rate = max(_rate(pair.harness), _rate(pair.reference))
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
