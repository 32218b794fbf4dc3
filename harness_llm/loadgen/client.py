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
from harness_llm.datasets.store import open_store
from harness_llm.errors import HarnessError, RunFailed
from harness_llm.fleet.dispatcher import Dispatcher
from harness_llm.fleet.keys import read_pair
from harness_llm.fleet.liveness import Liveness
from harness_llm.fleet.wire import Endpoint
from harness_llm.loadgen.probe import judge_probe
from harness_llm.loadgen.settings import compare
from harness_llm.loadgen.spec import CellSpec
from harness_llm.loadgen.sut import Sut
from harness_llm.monitor.meter import Meter
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
    dispatcher.attach(spec.cell, Sampling.model_validate(spec.sampling))
    if spec.probe_s:
        rate = _probe(spec, dispatcher)
        parent.say(event="probed", rate=rate)
        if rate is not None:
            judge_probe(spec.load, rate, spec.target_key)
    dispatcher.load(open_store(Path(spec.store)))

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
    counters = dispatcher.detach()
    dispatcher.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    parent.say(event="finished", done=sut.meter.done, tokens=sut.meter.tokens, peak_rss_bytes=peak, counters=counters)


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


def _probe(spec: CellSpec, dispatcher: Dispatcher) -> float | None:
    """Samples a second over the second half of the probe, at the concurrency of the scenario.

    None where that half did not see as many answers as are in flight: they take longer than the probe, which therefore
    tells nothing.
    """
    store = open_store(Path(spec.probe_store))
    dispatcher.load(store)
    concurrency = 1
    if spec.scenario != "SingleStream":
        concurrency = (spec.credit.batch + spec.credit.backlog) * len(spec.endpoints)
    begin = time.perf_counter()
    counted_from, counted, asked = begin + spec.probe_s / 2, 0, 0
    while (now := time.perf_counter()) < begin + spec.probe_s:
        more = concurrency - dispatcher.in_flight
        queries = range(asked, asked + more)
        dispatcher.offer(queries, [query % len(store) for query in queries])
        asked += more
        dispatcher.feed()
        finished = len(dispatcher.harvest(timeout_ms=10).finished)
        counted += finished if now >= counted_from else 0
    while dispatcher.in_flight:
        dispatcher.feed()
        dispatcher.harvest(timeout_ms=10)
    return counted / (spec.probe_s / 2) if counted >= concurrency else None


if __name__ == "__main__":
    threading.current_thread().name = "loadgen"
    main()
