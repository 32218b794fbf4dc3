"""Server arm without the harness: LoadGen and vLLM's AsyncLLM in one process.

Run as `python -m benchmarks.raw_server SPEC.json`, with LoadGen first on the Python path. LoadGen's seeds are the
round's, so that queries arrive at the same times as in the harness.
"""

import array
import asyncio
import gc
import os
import sys
import threading
from pathlib import Path
from typing import Any

import mlperf_loadgen as lg
import msgspec

from benchmarks.server import RawServerSpec
from harness_llm.config.benchmark import Sampling
from harness_llm.protocol.child_processes import Parent
from harness_llm.protocol.token_store import TokenStore, open_store


class Direct:
    """A SUT that calls AsyncLLM on an event loop in another thread."""

    def __init__(self, engine: Any, sampling: Sampling, store: TokenStore, loop: asyncio.AbstractEventLoop) -> None:
        """Serve samples of `store`."""
        from harness_llm.replicas.engines.vllm import sampling_params  # noqa: PLC0415 - loads vLLM, see main

        self._engine, self._store = engine, store
        self._params = sampling_params(sampling, stream=True)
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def issue(self, queries: list[int], samples: list[int]) -> None:
        """LoadGen's callback."""
        self._loop.call_soon_threadsafe(self._start, queries, samples)

    def _start(self, queries: list[int], samples: list[int]) -> None:
        for query, sample in zip(queries, samples, strict=True):
            task = self._loop.create_task(self._answer(query, sample))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, query: int, sample: int) -> None:
        ids = await self.ask(str(query), sample, lambda first: lg.FirstTokenComplete([_response(query, first)]))
        lg.QuerySamplesComplete([_response(query, ids)])

    async def ask(self, name: str, sample: int, started: Any) -> "array.array[int]":
        """Answer a sample; call `started` with the first token."""
        ids = array.array("i")
        prompt = {"prompt_token_ids": self._store.prompt(sample).tolist()}
        async for output in self._engine.generate(prompt, self._params, name):
            new = output.outputs[0].token_ids
            if new and not ids:
                started(array.array("i", new[:1]))
            ids.extend(new)
        return ids


def _response(query: int, ids: "array.array[int]") -> lg.QuerySampleResponse:
    return lg.QuerySampleResponse(query, ids.buffer_info()[0], len(ids) * ids.itemsize, len(ids))


def _prepare() -> None:
    """Prepare torch as a replica does."""
    from harness_llm.replicas.engines.vllm import prepare_torch  # noqa: PLC0415 - loads torch

    prepare_torch()


def _load(spec: RawServerSpec) -> Any:
    """Load AsyncLLM; its engine's process inherits the cores that this process has at that time."""
    os.sched_setaffinity(0, spec.engine_cpus)
    from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415 - OpenMP counts the cores when it is loaded
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415

    # As in raw.py: without statistics, which the front end would write for every token.
    quiet = spec.llm_config | {"disable_log_stats": True}
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model=spec.checkpoint, **quiet))
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), spec.loadgen_cpus)
    return engine


def main() -> None:
    """Load the engine, warm up like a replica, and run Server once."""
    Parent()
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=RawServerSpec)
    engine, sampling = _load(spec), Sampling.model_validate(spec.sampling)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    warm = Direct(engine, sampling, open_store(Path(spec.warm_up_store)), loop)

    async def warm_up() -> None:
        batch = range(spec.llm_config["max_num_seqs"])
        await asyncio.gather(*(warm.ask(f"warm-{i}", i, lambda _: None) for i in batch))

    asyncio.run_coroutine_threadsafe(warm_up(), loop).result()
    # As vLLM's engine core does: garbage collection of all loaded objects would stop this process for 300 ms.
    gc.collect()
    gc.freeze()
    sut = Direct(engine, sampling, open_store(Path(spec.store)), loop)
    settings = lg.TestSettings()
    settings.FromConfig(spec.user_conf, spec.model, "Server", 1)
    settings.scenario = lg.TestScenario.Server
    settings.mode = lg.TestMode.PerformanceOnly
    log = lg.LogSettings()
    log.log_output.outdir = spec.output
    log.enable_trace = False
    handle = lg.ConstructFastSUT(sut.issue, lambda: None)
    library = lg.ConstructQSL(spec.samples, spec.samples, lambda _: None, lambda _: None)
    lg.StartTestWithLogSettings(handle, library, settings, log, f"{spec.output}/no-audit.config")
    engine.shutdown()
    os._exit(0)


if __name__ == "__mp_main__":  # in the engine's process, which is spawned
    _prepare()
if __name__ == "__main__":
    main()
