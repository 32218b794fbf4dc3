"""vLLM's front end in a replica: CPU time per sequence and step, and delay of a new query before the engine core.

    python -m benchmarks front

The first part passes outputs of an engine core, one token per sequence, to a replica's engine class with vLLM's output
processor. The second part starts a replica of the demo whose engine core is in its own process, as on accelerators, and
sends it queries at random times.
"""

import itertools
import json
import math
import statistics
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import zmq
from rich.console import Console
from rich.table import Table

from benchmarks.measurement import interval
from benchmarks.session import COMMAND, demo_request
from benchmarks.timed_replica import BLOCKING, MODE, TIMES, WAITING
from harness_llm.config.assets import Assets, prepare
from harness_llm.config.benchmark import Sampling
from harness_llm.config.request import Request
from harness_llm.errors import RunFailed
from harness_llm.hardware.device_lock import hold
from harness_llm.paths import CHECKOUT
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.submit import Pipeline
from harness_llm.protocol import messages as wire
from harness_llm.protocol.child_processes import Child, start
from harness_llm.protocol.token_store import TokenStore, open_store
from harness_llm.replicas.local import program, start_pool

SEQUENCES = 2048
STEPS = 40
# A part of the rate that saturates the demo's replica on one core: a step has about ten sequences.
QUERIES_PER_S = 60.0
SETS = ("env_config.VLLM_ENABLE_V1_MULTIPROCESSING=1",)
PATIENCE_MS = 60_000
ARMS = {"streamed, stream_interval 1": (True, 1), "streamed, as served": (True, None), "whole answers": (False, None)}


class FakeLLMEngine:
    """Replaces LLMEngine: vLLM's output processor, and an engine core that returns a token per sequence and step."""

    def __init__(self, stream_interval: int | None) -> None:
        """`stream_interval` replaces that of the queries."""
        from vllm.v1.engine import EngineCoreOutputs  # noqa: PLC0415 - loads torch
        from vllm.v1.engine.output_processor import OutputProcessor  # noqa: PLC0415

        self.output_processor = OutputProcessor(None, log_stats=True)
        self.engine_core = self
        self.vllm_config = SimpleNamespace(speculative_config=None)
        self._interval = stream_interval
        self._outputs: list[Any] = []
        self._batch = EngineCoreOutputs

    def add_request(self, key: str, prompt: Mapping[str, list[int]], params: Any) -> None:
        """Add a query as LLMEngine does."""
        from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest  # noqa: PLC0415

        if self._interval:
            params = params.clone()
            params.stream_interval = self._interval
        request = EngineCoreRequest(
            request_id=key,
            prompt_token_ids=prompt["prompt_token_ids"],
            mm_features=None,
            sampling_params=params,
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            external_req_id=key,
        )
        self.output_processor.add_request(request, None)
        self._outputs.append(EngineCoreOutput(key, [5]))

    def get_output(self) -> Any:
        """Return the outputs of the next step."""
        return self._batch(outputs=self._outputs)


def step_cost_us(*, stream: bool, stream_interval: int | None) -> float:
    """Measure the front end's microseconds per sequence and step after the first tokens."""
    from harness_llm.replicas.engines.vllm import VllmEngine  # noqa: PLC0415 - loads torch

    llm_engine: Any = FakeLLMEngine(stream_interval)
    engine = VllmEngine(llm_engine)
    engine.configure(Sampling(temperature=0.0, min_tokens=1, max_tokens=1024, stop_token_ids=(2,)), stream=stream)
    for query in range(SEQUENCES):
        engine.add(query, [3])
    engine.step()
    begin = time.thread_time()
    for _ in range(STEPS):
        engine.step()
    return (time.thread_time() - begin) / STEPS / SEQUENCES * 1e6


def run(repeats: int, seconds: float, folder: Path, console: Console) -> dict[str, Any]:
    """Measure both parts; the arms alternate."""
    costs: dict[str, list[float]] = {name: [] for name in ARMS}
    for _ in range(repeats):
        for name, (stream, stream_interval) in ARMS.items():
            costs[name].append(step_cost_us(stream=stream, stream_interval=stream_interval))
    waits = _waits(repeats, seconds, folder, console)
    return {
        "sequences": SEQUENCES,
        "step_cost_us": {name: interval(values) for name, values in costs.items()},
        "queries_per_s": QUERIES_PER_S,
        "waits_ms": waits,
    }


def _waits(repeats: int, seconds: float, folder: Path, console: Console) -> dict[str, Any]:
    """Return, by mode, medians over the runs of the percentiles of engine delay and TTFT in ms."""
    request = demo_request("Server", sets=SETS)
    [plan] = request.scenarios
    panel = Panel(console)
    assets = prepare(Pipeline(request, panel).preparation, panel.stage)
    mode, times = folder / "mode", folder / "times"
    extra = {MODE: str(mode), TIMES: str(times)}
    found: dict[str, list[dict[str, float]]] = {BLOCKING: [], WAITING: []}
    with hold("cpu", COMMAND):
        pool = _pool(request, assets, panel, extra)
        try:
            client = Client(pool.endpoints[0].address, plan.config.sampling, open_store(assets.store("performance")))
            for number in range(repeats):
                for name in (BLOCKING, WAITING)[:: 1 if number % 2 else -1]:
                    mode.write_text(name)
                    found[name].append(client.run(seconds, times))
                    console.print(f"front, {name}: {found[name][-1]}")
        finally:
            pool.stop()
    return {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for name, runs in found.items()
    } | {"runs": found}


def _pool(request: Request, assets: Assets, panel: Panel, extra: Mapping[str, str]) -> Any:
    def launch(name: str, specs: Any, environment: Mapping[str, str], log: Path) -> Child:
        _, file = program(specs, Path(environment["TMPDIR"]) / f"{name}.json")
        own = {**environment, **extra, "PYTHONPATH": str(CHECKOUT)}
        return start("benchmarks.timed_replica", [str(file)], name=name, log=log, environment=own)

    return start_pool(
        request.scenarios[0].config,
        engine="vllm",
        checkpoint=assets.checkpoint,
        calibration=assets.calibration,
        logs=request.log_folder,
        cache=request.workspace.cache,
        report=panel.starting,
        launcher=launch,
    )


class Client:
    """Sends queries to one replica at random times."""

    def __init__(self, address: str, sampling: Sampling, store: TokenStore) -> None:
        """Connect to the replica."""
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.connect(address)
        self._sampling, self._store = sampling, store
        self._generations = itertools.count(1)

    def run(self, seconds: float, times: Path) -> dict[str, float]:
        """Return percentiles in ms from sending a query to its entry into the engine, and to its first token."""
        generation = next(self._generations)
        self._request(wire.Attach(generation, "front", stream=True, sampling=self._sampling.model_dump_json()))
        gaps = np.random.default_rng(generation // 2).exponential(1 / QUERIES_PER_S, round(QUERIES_PER_S * seconds))
        sent, first, done = self._load(generation, time.perf_counter() + np.cumsum(gaps))
        if done != len(sent):
            raise RunFailed("queries without an answer", expected=str(len(sent)), found=str(done))
        self._request(wire.Detach(generation))
        entered = dict(json.loads(times.read_text()))
        waited = np.array([entered[query] - at for query, at in sent.items()]) * 1000
        ttft = np.array([first[query] - at for query, at in sent.items()]) * 1000
        return {
            f"{name}_p{percentile}": round(float(np.percentile(values, percentile)), 2)
            for name, values in (("wait", waited), ("ttft", ttft))
            for percentile in (50, 99)
        }

    def _request(self, request: wire.Request) -> None:
        """Send a request and wait for Idle."""
        self._socket.send(wire.encode(request))
        if not self._socket.poll(PATIENCE_MS):
            raise RunFailed("no answer from the replica", found=type(request).__name__)
        self._socket.recv()

    def _load(self, generation: int, due: Iterable[float]) -> tuple[dict[int, float], dict[int, float], int]:
        """Return the time of sending and of the first token of each query, and the number of answers."""
        sent: dict[int, float] = {}
        first: dict[int, float] = {}
        done = 0
        for query, at in enumerate(due):
            while (early := at - time.perf_counter()) > 0:
                done += self._receive(math.ceil(early * 1000), first)
            prompt = self._store.prompt(query % len(self._store))
            tokens = wire.pack_tokens([prompt])
            sent[query] = time.perf_counter()
            self._socket.send(wire.encode(wire.Submit(generation, [query], [len(prompt)], tokens, [], [])))
        while done < len(sent) and self._socket.poll(PATIENCE_MS):
            done += self._receive(0, first)
        return sent, first, done

    def _receive(self, wait_ms: int, first: dict[int, float]) -> int:
        """Wait for a message; return the number of its answers."""
        if not self._socket.poll(wait_ms):
            return 0
        reply = wire.decode_reply(self._socket.recv())
        if not isinstance(reply, wire.Answers):
            raise RunFailed("the replica refused a query", found=str(reply))
        first |= dict.fromkeys(reply.first_queries, time.perf_counter())
        return len(reply.queries)


def table(found: Mapping[str, Any]) -> Table:
    """Show the medians."""
    shown = Table("figure", "median", "95 % interval", box=None)
    for name, cost in found["step_cost_us"].items():
        shown.add_row(f"{name}, µs", f"{cost['median']:.2f}", f"{cost['low']:.2f} to {cost['high']:.2f}")
    for mode in (BLOCKING, WAITING):
        for key, value in found["waits_ms"][mode].items():
            shown.add_row(f"{mode}: {key}, ms", f"{value:.2f}", "")
    return shown
