"""The LoadGen process of one cell.

LoadGen reads its configuration once per process, and cannot be aborted: so each cell has a process of its own, which on
failure says why and leaves. Run as `python -m harness_llm.loadgen.client SPEC.json` by the pipeline.
"""

import gc
import os
import resource
import sys
import threading
import time
import traceback
from pathlib import Path

import mlperf_loadgen as lg
import msgspec
import psutil

from harness_llm.benchmarks import Sampling
from harness_llm.datasets.store import TokenStore, open_store
from harness_llm.errors import HarnessError, RunFailed
from harness_llm.fleet.dispatcher import Dispatcher
from harness_llm.fleet.keys import read_pair
from harness_llm.fleet.liveness import Liveness
from harness_llm.fleet.wire import Endpoint
from harness_llm.loadgen.probe import ProbeSpec, Unmeasured, contexts, run_probe
from harness_llm.loadgen.probe_pool import DispatcherPool
from harness_llm.loadgen.settings import compare
from harness_llm.loadgen.spec import CellSpec
from harness_llm.loadgen.sut import Sut
from harness_llm.loadgen.verdict import judge_prediction
from harness_llm.monitor.meter import Meter
from harness_llm.plan import seconds
from harness_llm.processes import Parent

MODES = {"performance": lg.TestMode.PerformanceOnly, "accuracy": lg.TestMode.AccuracyOnly}


def main() -> None:
    """Run the cell; every end but success is told to the parent."""
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=CellSpec)
    parent = Parent()
    os.sched_setaffinity(0, spec.cpus)
    try:
        _run(spec, parent)
    except HarnessError as error:
        _fail(parent, error)


def _fail(parent: Parent, error: Exception) -> None:
    """Say why and leave at once: LoadGen would wait for answers that never come."""
    traceback.print_exception(error)
    if not isinstance(error, HarnessError):
        error = RunFailed("the LoadGen process failed", found=repr(error))
    parent.say(event="failed", **error.facts())
    os._exit(error.exit_code)


def _run(spec: CellSpec, parent: Parent) -> None:
    settings = _settings(spec)
    dispatcher = _dispatcher(spec, parent)
    store, sampling = open_store(Path(spec.store)), Sampling.model_validate(spec.sampling)
    if spec.probe:
        _probe(spec, spec.probe, dispatcher, store, parent)
    else:
        dispatcher.attach(spec.cell, sampling)
    dispatcher.load(store)

    def report(meter: Meter) -> None:
        held = [[load.running, load.unstarted_tokens] for load in dispatcher.ledger.loads.values()]
        parent.say(event="progress", in_flight=dispatcher.in_flight, held=held, **meter.snapshot())

    # A collection stops LoadGen's thread too, for tens of ms; nothing here makes cycles (docs/benchmarks.md, growth).
    gc.disable()
    sut = Sut(dispatcher, stream=spec.stream, report=report, fail=lambda error: _fail(parent, error))
    sut.start()
    parent.say(event="started", rss_bytes=psutil.Process().memory_info().rss)
    _load(spec, settings, sut)
    sut.stop()
    readings = dispatcher.detach()
    dispatcher.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    parent.say(
        event="finished",
        done=sut.meter.done,
        tokens=sut.meter.tokens,
        peak_rss_bytes=peak,
        counters=readings.counters,
        kv_caches=msgspec.to_builtins(readings.kv_caches),
    )


def _dispatcher(spec: CellSpec, parent: Parent) -> Dispatcher:
    def tell_lost(endpoint: Endpoint, cause: str, queries: int) -> None:
        parent.say(event="lost", address=endpoint.address, cause=cause, queries=queries)

    return Dispatcher(
        spec.endpoints,
        generation=spec.generation,
        credit=spec.credit if spec.scenario == "Offline" else None,
        stream=spec.stream,
        liveness=Liveness(spec.silence_s, spec.stall_s),
        news=parent.told,
        tell_lost=tell_lost,
        keys=read_pair(Path(spec.keys)),
    )


def _settings(spec: CellSpec) -> lg.TestSettings:
    settings = lg.TestSettings()
    status = settings.FromConfig(spec.user_conf, spec.model, spec.scenario, 1)
    if status:
        raise RunFailed("LoadGen refuses user.conf", where=spec.user_conf, found=f"status {status}")
    settings.scenario = getattr(lg.TestScenario, spec.scenario)
    settings.mode = MODES[spec.mode]
    compare(settings, spec.expected)
    return settings


def _load(spec: CellSpec, settings: lg.TestSettings, sut: Sut) -> None:
    log = lg.LogSettings()
    log.log_output.outdir = spec.output
    log.log_output.copy_summary_to_stdout = True
    log.enable_trace = False
    handle = lg.ConstructFastSUT(sut.issue, sut.flush)
    library = lg.ConstructQSL(spec.samples, spec.samples, lambda _: None, lambda _: None)
    lg.StartTestWithLogSettings(handle, library, settings, log, spec.audit_config)
    lg.DestroyQSL(library)
    lg.DestroyFastSUT(handle)


def _probe(spec: CellSpec, probe: ProbeSpec, dispatcher: Dispatcher, store: TokenStore, parent: Parent) -> None:
    """Predict the throughput, attach for the run, and refuse a target that cannot become VALID."""
    sampling = Sampling.model_validate(spec.sampling)
    work = probe.work(float(store.lengths().mean()))
    calibration = open_store(Path(probe.store))
    prompts = contexts([calibration.prompt(i) for i in range(len(calibration))], probe)
    pool, began = DispatcherPool(dispatcher, sampling, probe.tokens), time.perf_counter()
    try:
        found = run_probe(pool, prompts, work, probe)
    except Unmeasured as error:
        dispatcher.attach(spec.cell, sampling)
        parent.say(event="probed", prediction=None, reason=str(error))
        return
    loaded = time.perf_counter()
    tail_s = found.likely_tail_s if spec.scenario == "Offline" else 0.0
    dispatcher.attach(spec.cell, sampling)
    prediction = msgspec.structs.replace(
        found,
        load_s=loaded - began,
        drain_s=time.perf_counter() - loaded,
        run_s=seconds(spec.load, "performance", found.samples_per_second) + tail_s,
    )
    parent.say(event="probed", prediction=msgspec.to_builtins(prediction))
    judge_prediction(spec.load, prediction, spec.target_key)


if __name__ == "__main__":
    threading.current_thread().name = "loadgen"
    main()
