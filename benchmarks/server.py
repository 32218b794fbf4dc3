"""TTFT in Server through the harness against AsyncLLM driven directly, with the same arrivals on the same cores.

The target rate is 60 % of the harness's Offline rate. LoadGen measures both arms. AsyncLLM has its engine in another
process, as always, and is restarted for every run.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.measurement import interval
from benchmarks.replayed import Figures, measure, read_figures, with_load
from benchmarks.session import COMMAND, demo_bench, demo_request
from harness_llm.errors import RunFailed
from harness_llm.hardware.device_lock import hold
from harness_llm.loadgen.versions import loadgen_folder
from harness_llm.paths import CHECKOUT
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.run import ScenarioContext
from harness_llm.protocol.child_processes import start
from harness_llm.replicas.local import replica_environment
from harness_llm.replicas.placement import placement

TARGET = 1.2
OF_OFFLINE = 0.6  # at 0.8, queries queue in both arms, and equal runs differ by a factor of ten


class RawServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Specification of AsyncLLM's process."""

    checkpoint: str
    llm_config: dict[str, Any]
    sampling: dict[str, Any]
    engine_cpus: list[int]
    loadgen_cpus: list[int]
    store: str
    samples: int
    warm_up_store: str
    user_conf: str
    model: str
    output: str


def run(repeats: int, seconds: float, folder: Path, console: Console) -> dict[str, Any]:
    """Measure `repeats` pairs of runs of `seconds`; the arms alternate in running first."""
    panel = Panel(console)
    with hold("cpu", COMMAND):
        with demo_bench(demo_request(), panel) as offline:
            rate = measure(offline, 1).queries_per_s * OF_OFFLINE
        runs: dict[str, list[Figures]] = {"harness": [], "raw": []}
        with demo_bench(demo_request("Server"), panel) as bench:
            for number in range(repeats):
                for arm in ("harness", "raw")[:: 1 if number % 2 else -1]:
                    if arm == "harness":
                        runs[arm].append(measure(bench, rate, seconds=seconds))
                    else:
                        runs[arm].append(_raw(bench, rate, seconds, folder / f"raw-{number}"))
                pair = ", ".join(f"{arm} p99 TTFT {own[-1].ttft_ms} ms" for arm, own in runs.items())
                console.print(f"server, pair {number + 1} of {repeats}: {pair}")
    p99 = {arm: [own.ttft_ms[1] for own in figures if own.ttft_ms] for arm, figures in runs.items()}
    ratios = [harness / raw for harness, raw in zip(p99["harness"], p99["raw"], strict=True)]
    return {
        "target": TARGET,
        "target_qps": rate,
        "ratio": interval(ratios),
        **{arm: {"p99_ttft_ms": interval(p99[arm]), "runs": [asdict(own) for own in runs[arm]]} for arm in runs},
    }


def _raw(bench: ScenarioContext, rate: float, seconds: float, output: Path) -> Figures:
    loaded = with_load(bench, rate, seconds=seconds)
    plan, harness = bench.plan, bench.plan.config.harness_config
    output.mkdir()
    conf, file = output / "user.conf", output / "spec.json"
    conf.write_text(loaded.plan.confs["performance"].render())
    placed = placement([{}], harness.loadgen_cpus)
    cpus, loadgen_cpus = list(placed.replicas[0].binding.cpus), placed.loadgen_cpus
    spec = RawServerSpec(
        checkpoint=str(bench.assets.checkpoint),
        llm_config=plan.config.llm_config,
        sampling=plan.config.sampling.model_dump(mode="json"),
        engine_cpus=cpus,
        loadgen_cpus=loadgen_cpus,
        store=str(bench.assets.store("performance")),
        samples=bench.request.samples("performance"),
        warm_up_store=str(bench.assets.calibration),
        user_conf=str(conf),
        model=plan.loadgen_model,
        output=str(output),
    )
    file.write_bytes(msgspec.json.encode(spec))
    environment = replica_environment(plan.config, cpus, folder=output, cache=bench.request.workspace.cache)
    path = {"PYTHONPATH": f"{loadgen_folder(bench.request.round)}:{CHECKOUT}"}
    log = bench.request.log_folder / "raw.log"
    child = start("benchmarks.raw_server", [str(file)], name="AsyncLLM", log=log, environment=environment | path)
    try:
        if child.process.wait():
            raise RunFailed("AsyncLLM failed", where=str(log), found=child.last_lines())
    finally:
        child.stop()
    return read_figures(output, rate)


def table(found: Mapping[str, Any]) -> Table:
    """Show the medians."""
    shown = Table("arm", "p99 TTFT, ms", "95 % interval", box=None)
    for arm in ("harness", "raw"):
        own = found[arm]["p99_ttft_ms"]
        shown.add_row(arm, f"{own['median']:.1f}", f"{own['low']:.1f} to {own['high']:.1f}")
    ratio = found["ratio"]
    shown.add_row("ratio", f"{ratio['median']:.2f}", f"{ratio['low']:.2f} to {ratio['high']:.2f}")
    return shown


def misses(found: Mapping[str, Any]) -> list[str]:
    """Return the figures that miss their targets."""
    median = found["ratio"]["median"]
    return (
        [] if median <= TARGET else [f"Server: p99 TTFT {median:.2f} times that of AsyncLLM, target at most {TARGET}"]
    )
