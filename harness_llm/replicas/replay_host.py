"""Replay host: many replicas of the replay engine in one process, each with its own endpoints.

The replica pool runs `python -m harness_llm.replicas.replay_host SPECS.json`; SPECS is a list of ReplicaSpec.
"""

import gc
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import zmq

from harness_llm.errors import HarnessError
from harness_llm.hardware.numa import Binding, bind
from harness_llm.protocol.child_processes import Parent
from harness_llm.protocol.messages import Endpoint
from harness_llm.replicas.engines.replay import ReplayEngine
from harness_llm.replicas.heartbeat import HeartbeatPublisher
from harness_llm.replicas.replica import Replica, ReplicaSpec, curve_auth

_MS = 1000


class Host:
    """Serves several replicas, each at its own pace."""

    def __init__(self, specs: Sequence[ReplicaSpec]) -> None:
        """Bind every replica.

        Raises:
            HarnessError: the recorded run does not exist.
        """
        self._heartbeat_publisher = HeartbeatPublisher()
        self._auth = curve_auth(specs[0])
        self._poller = zmq.Poller()
        self._hosted: list[tuple[ReplayEngine, Replica]] = []
        self._by_socket: dict[object, Replica] = {}
        self.endpoints = [self._bind(spec) for spec in specs]

    def _bind(self, spec: ReplicaSpec) -> Endpoint:
        if spec.replay is None:
            raise ValueError("not a replica of the replay engine")
        engine = ReplayEngine(spec.llm_config, spec.replay)
        replica = Replica(engine, spec.endpoint.address, self._auth)
        self._hosted.append((engine, replica))
        self._by_socket[replica.socket] = replica
        self._poller.register(replica.socket, zmq.POLLIN)
        heartbeat = self._heartbeat_publisher.bind(spec.endpoint.heartbeat, replica.heartbeat, self._auth)
        return Endpoint(replica.address, heartbeat, self._auth.key if self._auth else "", spec.name)

    def serve(self) -> None:
        """Serve until the process exits."""
        self._heartbeat_publisher.start()
        gc.freeze()
        due: float | None = None
        while True:
            self._receive(due)
            due = self._step()

    def _receive(self, due: float | None) -> None:
        """Process messages until a step is `due`."""
        timeout = None if due is None else max(int((due - time.perf_counter()) * _MS), 0)
        for socket, _ in self._poller.poll(timeout):
            self._by_socket[socket].receive()
        # The poller's timeout is in whole milliseconds.
        if due is not None and 0 < (rest := due - time.perf_counter()) < 1 / _MS:
            time.sleep(rest)

    def _step(self) -> float | None:
        """Make the steps that are due; return the time of the next one, if any."""
        following: float | None = None
        for engine, replica in self._hosted:
            if (due := engine.due) is not None and due <= time.perf_counter():
                replica.step()
                due = engine.due
            if due is not None and (following is None or due < following):
                following = due
        return following


def main() -> None:
    """Bind all replicas, report, and serve."""
    specs = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=list[ReplicaSpec])
    parent = Parent(clean_up=Path(sys.argv[1]).parent)
    bind(Binding(tuple(specs[0].cpus), tuple(specs[0].memory)))
    try:
        host = Host(specs)
    except HarnessError as error:
        parent.send(event="failed", **error.facts())
        sys.exit(error.exit_code)
    parent.send(event="ready", endpoints=msgspec.to_builtins(host.endpoints))
    host.serve()


if __name__ == "__main__":
    main()
