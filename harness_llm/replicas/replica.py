"""Replica: one engine over one tensor-parallel group; serves the attached run.

Run as `python -m harness_llm.replicas.replica SPEC.json` by the replica pool.
"""

import gc
import os
import select
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import zmq

from harness_llm.config.benchmark import Sampling
from harness_llm.errors import HarnessError, ProcessFailed, RunFailed
from harness_llm.hardware.numa import Binding, bind
from harness_llm.protocol import messages as wire
from harness_llm.protocol.child_processes import Parent
from harness_llm.protocol.curve import CurveAuth
from harness_llm.protocol.messages import Endpoint
from harness_llm.protocol.token_store import TokenStore, open_store
from harness_llm.replicas.engines.engine import Engine, ServerSpec, Step, build_engine
from harness_llm.replicas.engines.replay import ReplaySpec
from harness_llm.replicas.heartbeat import HeartbeatPublisher
from harness_llm.replicas.profile_control import Profilable, ProfileControl

REPORT_S = 1.0  # between two reports of the warm-up


class ReplicaSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Specification of a replica.

    Attributes:
        name: of the replica in records.
        server: for engines over HTTP.
        replay: for the replay engine, which replay_host.py serves.
        endpoint: addresses to bind; a TCP port may be a wildcard, and the replica reports the bound addresses.
        client: CURVE public key of LoadGen's process, for TCP.
        cpus: its cores; `memory` are its NUMA nodes, if there are several.
        workers: Ray placement group of the engine's workers, if they are in other processes.
        traces: folder for traces of the engine's profiler; empty for an engine without one.
        warm_up_store: calibration prompts; `warm_up_batch` are served at once, with `warm_up_tokens` each.
    """

    name: str
    engine: str
    checkpoint: str
    llm_config: dict[str, Any]
    server: ServerSpec
    replay: ReplaySpec | None
    endpoint: Endpoint
    client: str
    cpus: list[int]
    memory: list[int]
    workers: str = ""
    traces: str = ""
    warm_up_store: str
    warm_up_batch: int
    warm_up_tokens: int


class Replica:
    """The serving loop around an engine."""

    def __init__(
        self, engine: Engine, address: str, auth: CurveAuth | None = None, control: ProfileControl | None = None
    ) -> None:
        """Bind `address` and serve `engine`; `control` is for an engine with a profiler."""
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.set_hwm(0)
        if auth:
            auth.protect(self.socket)
        self.socket.bind(address)
        self.address: str = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._engine = engine
        self._peer = b""
        self._generation = 0
        self._steps = 0
        self._stepped = 0.0
        self._poller = zmq.Poller()
        self._poller.register(self.socket, zmq.POLLIN)
        if engine.arrivals is not None:
            self._poller.register(engine.arrivals, zmq.POLLIN)
        self._control = control
        if control:
            self._poller.register(control.arrivals, zmq.POLLIN)

    def serve(self) -> None:
        """Serve until the process exits."""
        while True:
            self.serve_once()

    def serve_once(self) -> None:
        """Wait for messages or engine outputs; receive before the step, so that new queries enter it.

        An engine without `arrivals` computes in `step`, so there is no waiting while it is busy.
        """
        computes = self._engine.arrivals is None and self.busy
        ready = dict(self._poller.poll(0 if computes else None))
        self.receive()
        if self._control and self._control.arrivals in ready:
            self._control.take()
        if computes or self._engine.arrivals in ready:
            self.step()

    @property
    def busy(self) -> bool:
        """Whether the engine has unfinished queries."""
        return self._engine.busy

    def heartbeat(self) -> wire.Heartbeat:
        """Return the current heartbeat; from any thread."""
        activity, at = self._engine.activity(), time.perf_counter()
        return wire.Heartbeat(self.address, self._generation, self._steps, self.busy, at, activity)

    def receive(self) -> None:
        """Process the messages that have arrived."""
        for peer, body in wire.received(self.socket):
            request = wire.decode_request(body)
            if isinstance(request, wire.Attach):
                self._attach(peer, request)
            elif request.generation != self._generation:
                continue
            elif isinstance(request, wire.Detach):
                self._send_idle()
            elif isinstance(request, wire.Count):
                self._send(wire.Counted(self._generation, self._engine.generated, self._stepped))
            else:
                self._submit(request)

    def _attach(self, peer: bytes, request: wire.Attach) -> None:
        self._engine.abort()
        self._peer, self._generation = peer, request.generation
        self._engine.configure(Sampling.model_validate_json(request.sampling), stream=request.stream)
        self._send_idle()

    def _send_idle(self) -> None:
        try:
            idle = wire.Idle(self._generation, self._engine.counters(), self._engine.kv_cache())
        except ValueError as error:
            self._send(wire.Fault(self._generation, str(error)))
        else:
            self._send(idle)

    def _submit(self, request: wire.Submit) -> None:
        prompts = wire.unpack_tokens(request.tokens, request.lengths)
        kinds = request.kinds or [""] * len(request.queries)
        reported = request.reported or [0] * len(request.queries)
        for query, prompt, kind, known in zip(request.queries, prompts, kinds, reported, strict=True):
            try:
                self._engine.add(query, prompt.tolist(), kind, known)
            except ValueError as error:
                self._send(wire.Fault(self._generation, str(error)))

    def step(self) -> None:
        """Make one engine step and send its outputs."""
        self._steps += 1
        try:
            step = self._engine.step()
        except ValueError as error:
            self._send(wire.Fault(self._generation, str(error)))
        else:
            self._stepped = time.perf_counter()
            self._answer(step)

    def _answer(self, step: Step) -> None:
        if not step.first and not step.finished:
            return
        answers = [ids for _, ids in step.finished]
        self._send(
            wire.Answers(
                generation=self._generation,
                first_queries=[query for query, _ in step.first],
                first_tokens=wire.pack_tokens([[token] for _, token in step.first]),
                queries=[query for query, _ in step.finished],
                lengths=[len(ids) for ids in answers],
                tokens=wire.pack_tokens(answers),
            )
        )

    def _send(self, reply: wire.Reply) -> None:
        self.socket.send_multipart([self._peer, wire.encode(reply)])


def warm_up(
    engine: Engine, store: TokenStore, batch: int, tokens: int, report: Callable[[float], None] = lambda _: None
) -> int:
    """Serve `batch` calibration prompts at once, `tokens` of answer to each; return the number of tokens generated.

    A batch of max_num_seqs passes through every batch size of a run: its prompts start in the first steps, as many in
    each as max_num_batched_tokens allows, and their answers finish in the same order. So kernels are compiled or tuned,
    and memory is allocated, for every batch size. Longer answers add no further sizes.

    Args:
        report: takes the share that is done, 0 to 1, about once per second.

    Raises:
        ProcessFailed: the engine did not answer a prompt.
    """
    sampling = Sampling(temperature=0.0, min_tokens=1, max_tokens=tokens, stop_token_ids=())
    engine.configure(sampling, stream=False)
    for query in range(batch):
        engine.add(query, store.prompt(query % len(store)).tolist())
    try:
        return _finish_all(engine, lambda: report(engine.generated / (batch * tokens)))
    except ValueError as error:
        raise ProcessFailed("no answers to calibration prompts from the engine", found=str(error)) from error


def _finish_all(engine: Engine, report: Callable[[], None]) -> int:
    tokens, reported = 0, time.monotonic()
    while engine.busy:
        if time.monotonic() - reported >= REPORT_S:
            report()
            reported = time.monotonic()
        if engine.arrivals is not None:
            select.select([engine.arrivals], [], [])
        tokens += sum(len(ids) for _, ids in engine.step().finished)
    return tokens


def main() -> None:
    """Load the engine, warm up, report, and serve; an exception of the engine ends the process."""
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ReplicaSpec)
    parent = Parent(clean_up=Path(sys.argv[1]).parent)
    sys.stdout.write(f"bound to {bind(Binding(tuple(spec.cpus), tuple(spec.memory)))}\n")
    sys.stdout.flush()
    try:
        _serve(spec, parent)
    except HarnessError as error:
        parent.send(event="failed", **error.facts())
        os._exit(error.exit_code)
    except Exception as error:  # noqa: BLE001 - any exception: the queries are requeued
        _abort(parent, error)


def _serve(spec: ReplicaSpec, parent: Parent) -> None:
    engine = build_engine(spec.engine, spec.checkpoint, spec.llm_config, spec.server, spec.workers, traces=spec.traces)
    parent.send(event="loaded")
    warm_up(
        engine,
        open_store(Path(spec.warm_up_store)),
        spec.warm_up_batch,
        spec.warm_up_tokens,
        lambda done: parent.send(event="warm_up", done=min(done, 1.0)),
    )
    auth = curve_auth(spec)
    control = None
    if spec.traces and isinstance(engine, Profilable):
        control = ProfileControl(engine, parent.messages, parent.send)
    replica, heartbeat_publisher = Replica(engine, spec.endpoint.address, auth, control), HeartbeatPublisher()
    heartbeat = heartbeat_publisher.bind(spec.endpoint.heartbeat, replica.heartbeat, auth)
    endpoint = Endpoint(replica.address, heartbeat, auth.key if auth else "", spec.name)
    heartbeat_publisher.start()
    gc.freeze()  # loaded objects stay: garbage collection can skip them
    parent.send(event="ready", endpoints=[msgspec.to_builtins(endpoint)])
    replica.serve()


def curve_auth(spec: ReplicaSpec) -> CurveAuth | None:
    """Return the access control of a replica whose address is TCP."""
    return CurveAuth(spec.client) if spec.endpoint.address.startswith("tcp:") else None


def _abort(parent: Parent, error: Exception) -> None:
    """Exit immediately: a broken engine may not shut down, for example without memory."""
    try:
        traceback.print_exception(error)
        parent.send(event="raised", error=repr(error))
    finally:
        os._exit(RunFailed.exit_code)


def prepare_spawned() -> None:
    """Prepare a process that vLLM spawned for its engine core or a worker; it has the same arguments."""
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ReplicaSpec)
    if spec.engine == "vllm":
        from harness_llm.replicas.engines.vllm import prepare_process  # noqa: PLC0415 - loads torch

        prepare_process(Path(spec.checkpoint))


if __name__ == "__mp_main__":
    prepare_spawned()
if __name__ == "__main__":
    main()
