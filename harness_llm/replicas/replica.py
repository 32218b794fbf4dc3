"""A replica: one engine over one tensor-parallel group, serving whichever run is attached.

Run as `python -m harness_llm.replicas.replica SPEC.json` by the replica pool.
"""

import gc
import os
import select
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import msgspec
import zmq

from harness_llm.config.benchmark import Sampling
from harness_llm.errors import HarnessError, RunFailed
from harness_llm.hardware.numa import Binding, bind
from harness_llm.protocol import messages as wire
from harness_llm.protocol.child_processes import Parent
from harness_llm.protocol.curve import Gate
from harness_llm.protocol.messages import Endpoint
from harness_llm.protocol.sockets import arrived
from harness_llm.protocol.token_store import TokenStore, open_store
from harness_llm.replicas.engines.engine import Engine, ServerSpec, Step, build_engine
from harness_llm.replicas.engines.replay import ReplaySpec
from harness_llm.replicas.heartbeat import HeartbeatPublisher


class ReplicaSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica is started with.

    Attributes:
        server: for engines over HTTP.
        replay: for the engine that replays, which replay_host.py serves.
        endpoint: what to bind; the replica itself says where that is, as a TCP port may be left open.
        client: the public key of who may talk to it over TCP.
        cpus: the cores it may use; `memory` are the NUMA nodes that it is bound to, if there is a choice.
        workers: the Ray placement group for the workers of its engine, where they are not in its own process.
        warm_up_store: calibration prompts; `warm_up_batch` are answered at once, with `warm_up_tokens` each.
    """

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
    warm_up_store: str
    warm_up_batch: int
    warm_up_tokens: int


class Replica:
    """The serving loop around an engine."""

    def __init__(self, engine: Engine, address: str, gate: Gate | None = None) -> None:
        """Serve `engine` at `address`, behind `gate` if there is one."""
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.set_hwm(0)
        if gate:
            gate.guard(self.socket)
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

    def serve(self) -> None:
        """Serve until the process is ended."""
        while True:
            self.serve_once()

    def serve_once(self) -> None:
        """Wait for a message or for outputs of the engine; receive first, so that new queries enter its next step.

        An engine without `arrivals` computes in `step`, so that nothing is waited for while it is busy.
        """
        computes = self._engine.arrivals is None and self.busy
        ready = dict(self._poller.poll(0 if computes else None))
        self.receive()
        if computes or self._engine.arrivals in ready:
            self.step()

    @property
    def busy(self) -> bool:
        """Whether there is anything to do but to receive."""
        return self._engine.busy

    def beat(self) -> wire.Heartbeat:
        """How far it is; from any thread."""
        return wire.Heartbeat(self.address, self._generation, self._steps, self.busy)

    def receive(self) -> None:
        """Take in what has arrived at `socket`."""
        for peer, body in arrived(self.socket):
            request = wire.decode_request(body)
            if isinstance(request, wire.Attach):
                self._attach(peer, request)
            elif request.generation != self._generation:
                continue
            elif isinstance(request, wire.Detach):
                self._tell_idle()
            elif isinstance(request, wire.Count):
                self._send(wire.Counted(self._generation, self._engine.generated, self._stepped))
            else:
                self._submit(request)

    def _attach(self, peer: bytes, request: wire.Attach) -> None:
        self._engine.abort()
        self._peer, self._generation = peer, request.generation
        self._engine.configure(Sampling.model_validate_json(request.sampling), stream=request.stream)
        self._tell_idle()

    def _tell_idle(self) -> None:
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
        """Let the engine make a step, and send what that brought."""
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


def warm_up(engine: Engine, store: TokenStore, batch: int, tokens: int) -> int:
    """Serve `batch` calibration prompts at once, `tokens` of answer to each; return the number of tokens generated.

    A batch of max_num_seqs passes through every batch size of a run: its prompts enter within the first steps, as many
    in each as max_num_batched_tokens holds, and their answers end in the same order. Kernels that are compiled or tuned
    for a size, and memory that is allocated for it, are then ready. Longer answers add no further sizes.

    Raises:
        RunFailed: the engine could not answer a prompt.
    """
    sampling = Sampling(temperature=0.0, min_tokens=1, max_tokens=tokens, stop_token_ids=())
    engine.configure(sampling, stream=False)
    for query in range(batch):
        engine.add(query, store.prompt(query % len(store)).tolist())
    try:
        return _finish_all(engine)
    except ValueError as error:
        raise RunFailed("the engine does not answer calibration prompts", found=str(error)) from error


def _finish_all(engine: Engine) -> int:
    tokens = 0
    while engine.busy:
        if engine.arrivals is not None:
            select.select([engine.arrivals], [], [])
        tokens += sum(len(ids) for _, ids in engine.step().finished)
    return tokens


def main() -> None:
    """Load, warm up, say so, serve; what the engine raises ends the process."""
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ReplicaSpec)
    parent = Parent(clean_up=Path(sys.argv[1]).parent)
    sys.stdout.write(f"bound to {bind(Binding(tuple(spec.cpus), tuple(spec.memory)))}\n")
    sys.stdout.flush()
    try:
        _serve(spec, parent)
    except HarnessError as error:
        parent.say(event="failed", **error.facts())
        os._exit(error.exit_code)
    except Exception as error:  # noqa: BLE001 - whatever it is, the queries go elsewhere
        _break_down(parent, error)


def _serve(spec: ReplicaSpec, parent: Parent) -> None:
    engine = build_engine(spec.engine, spec.checkpoint, spec.llm_config, spec.server, spec.workers)
    parent.say(event="loaded")
    warm_up(engine, open_store(Path(spec.warm_up_store)), spec.warm_up_batch, spec.warm_up_tokens)
    gate = gate_of(spec)
    replica, heartbeat_publisher = Replica(engine, spec.endpoint.address, gate), HeartbeatPublisher()
    beats = heartbeat_publisher.bind(spec.endpoint.beats, replica.beat, gate)
    endpoint = Endpoint(replica.address, beats, gate.key if gate else "")
    heartbeat_publisher.start()
    gc.freeze()  # what is loaded stays: no collection need look at it again
    parent.say(event="ready", endpoints=[msgspec.to_builtins(endpoint)])
    replica.serve()


def gate_of(spec: ReplicaSpec) -> Gate | None:
    """For a replica that is reached over TCP."""
    return Gate(spec.client) if spec.endpoint.address.startswith("tcp:") else None


def _break_down(parent: Parent, error: Exception) -> None:
    """Leave at once: an engine that is broken may not end in good order, or not for want of memory."""
    try:
        traceback.print_exception(error)
        parent.say(event="raised", error=repr(error))
    finally:
        os._exit(RunFailed.exit_code)


def prepare_spawned() -> None:
    """Prepare a process that vLLM spawned for its engine core or a worker; it has this program's arguments."""
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ReplicaSpec)
    if spec.engine == "vllm":
        from harness_llm.replicas.engines.vllm import prepare_process  # noqa: PLC0415 - loads torch

        prepare_process(Path(spec.checkpoint))


if __name__ == "__mp_main__":
    prepare_spawned()
if __name__ == "__main__":
    main()
