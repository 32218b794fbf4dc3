"""One bench: both arms started and warm, then pair after pair."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from benchmarks.arms import Raw, measure_harness
from benchmarks.measurement import Measurement, Pair
from harness_llm.assets import prepare
from harness_llm.cell import Bench
from harness_llm.choices import choose
from harness_llm.fleet.local import start_fleet
from harness_llm.monitor.panel import Panel
from harness_llm.outcome import Scorer
from harness_llm.pipeline import Pipeline
from harness_llm.plan import issued
from harness_llm.request import Request, resolve
from harness_llm.workspace import Workspace

COMMAND = "make bench"
# The runs lie with the others, as those of a system of this name.
WORDS = {"system_name": "make-bench", "model": "demo", "profile": "smoke"}


def demo_request(
    scenario: str = "Offline", replicas: int = 1, *, words: Mapping[str, Any] | None = None, sets: Sequence[str] = ()
) -> Request:
    """One scenario at the smoke profile's sample count, without a probe; of the demo unless `words` name another."""
    given = {"scenarios": scenario, "set_": [f"harness_config.replicas={replicas}", *sets]}
    words = {**WORDS, **given, **(words or {})}
    request = resolve(choose(words), Workspace())
    return replace(request, profile=request.profile.model_copy(update={"probe_s": 0}))


@contextmanager
def demo_bench(request: Request, panel: Panel) -> Iterator[Bench]:
    """The fleet of the demo, warmed up."""
    plan = request.scenarios[0]
    pipeline = Pipeline(request, panel)
    assets = prepare(pipeline.preparation, panel.stage)
    subject = pipeline.subject(plan, assets)
    scorer = Scorer(request.benchmark, request.variants, assets)
    fleet = start_fleet(
        plan.config,
        engine=request.choices.engine,
        checkpoint=assets.checkpoint,
        calibration=assets.calibration,
        logs=request.log_folder,
        cache=request.workspace.cache,
        tell=panel.stage,
    )
    try:
        yield Bench(request, plan, assets, scorer, subject, fleet)
    finally:
        fleet.stop()


@contextmanager
def warm_arms(request: Request, panel: Panel) -> Iterator[tuple[Bench, Raw]]:
    """The fleet and raw vLLM, both loaded and warmed up on the same cores."""
    with demo_bench(request, panel) as bench:
        raw = Raw(bench)
        try:
            yield bench, raw
        finally:
            raw.stop()


def measure_pairs(bench: Bench, raw: Raw, count: int, seconds: float) -> Iterator[Pair]:
    """`count` pairs in which each arm should run `seconds` or a little more; the arms take turns in going first.

    A first pair over the data set once is thrown away: it warms both arms up and tells how fast they are.
    """
    pair = _measure_pair(bench, raw, bench.request.samples("performance"), harness_first=False)
    for number in range(count):
        rate = max(_rate(pair.harness), _rate(pair.raw))
        load = replace(bench.plan.load, min_duration_s=seconds, target_qps=rate)
        pair = _measure_pair(bench, raw, issued(load, "performance"), harness_first=number % 2 == 0)
        yield pair


def _measure_pair(bench: Bench, raw: Raw, samples: int, *, harness_first: bool) -> Pair:
    [replica] = bench.fleet.replicas
    if harness_first:
        harness = measure_harness(bench, samples, raw.child)
        return Pair(harness, raw.measure(samples, replica))
    measured = raw.measure(samples, replica)
    return Pair(measure_harness(bench, samples, raw.child), measured)


def _rate(measured: Measurement) -> float:
    return measured.samples / measured.seconds
