"""A replica: one engine over one tensor-parallel group, serving whichever cell is attached.

Run as `python -m harness_llm.fleet.replica SPEC.json` by the fleet.
"""

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import zmq

from harness_llm.benchmarks import Sampling
from harness_llm.datasets.store import TokenStore, open_store
from harness_llm.engines import Engine, Step, build_engine
from harness_llm.fleet import wire
from harness_llm.processes import Parent


class ReplicaSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica is started with; `cpus` are the cores it may use."""

    engine: str
    checkpoint: str
    llm_config: dict[str, Any]
    endpoint: str
    cpus: list[int]
    warm_up_store: str
    warm_up_samples: int
    warm_up_max_tokens: int


class Replica:
    """The serving loop around an engine."""

    def __init__(self, engine: Engine, socket: "zmq.Socket[bytes]") -> None:
        """Serve `engine` at the ROUTER `socket`."""
        self._engine = engine
        self._socket = socket
        self._peer = b""
        self._generation = 0

    def serve(self) -> None:
        """Serve until the process is ended."""
        while True:
            if not self._engine.busy:
                self._socket.poll()
            self._receive()
            if self._engine.busy:
                self._step()

    def _receive(self) -> None:
        while True:
            try:
                peer, body = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            request = wire.decode_request(body)
            if isinstance(request, wire.Attach):
                self._attach(peer, request)
            elif request.generation == self._generation:
                self._submit(request)

    def _attach(self, peer: bytes, request: wire.Attach) -> None:
        self._engine.abort()
        self._peer, self._generation = peer, request.generation
        self._engine.configure(Sampling.model_validate_json(request.sampling), stream=request.stream)
        self._send(wire.Idle(request.generation))

    def _submit(self, request: wire.Submit) -> None:
        ids = np.frombuffer(request.tokens, dtype="<i4")
        kinds = request.kinds or [""] * len(request.queries)
        start = 0
        for query, length, kind in zip(request.queries, request.lengths, kinds, strict=True):
            try:
                self._engine.add(query, ids[start : start + length].tolist(), kind)
            except ValueError as error:
                self._send(wire.Fault(self._generation, str(error)))
            start += length

    def _step(self) -> None:
        try:
            step = self._engine.step()
        except ValueError as error:
            self._send(wire.Fault(self._generation, str(error)))
        else:
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
        self._socket.send_multipart([self._peer, wire.encode(reply)])


def warm_up(engine: Engine, store: TokenStore, samples: int, max_tokens: int) -> int:
    """Serve `samples` calibration prompts; returns how many tokens that made."""
    sampling = Sampling(temperature=0.0, min_tokens=1, max_tokens=max_tokens, stop_token_ids=())
    engine.configure(sampling, stream=False)
    for query in range(samples):
        engine.add(query, store.prompt(query % len(store)).tolist())
    tokens = 0
    while engine.busy:
        tokens += sum(len(ids) for _, ids in engine.step().finished)
    return tokens


def main() -> None:
    """Load, warm up, say so, serve."""
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ReplicaSpec)
    parent = Parent(clean_up=Path(sys.argv[1]).parent)
    os.sched_setaffinity(0, spec.cpus)
    engine = build_engine(spec.engine, spec.checkpoint, spec.llm_config)
    parent.say(event="loaded")
    warm_up(engine, open_store(Path(spec.warm_up_store)), spec.warm_up_samples, spec.warm_up_max_tokens)
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    socket.set_hwm(0)
    socket.bind(spec.endpoint)
    parent.say(event="ready")
    Replica(engine, socket).serve()


if __name__ == "__main__":
    main()
