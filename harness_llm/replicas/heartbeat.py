"""Heartbeat publisher: a thread that publishes liveness and progress of its replicas, whatever their engines do."""

import threading
import time
from collections.abc import Callable

import zmq

from harness_llm.protocol import messages as wire
from harness_llm.protocol.curve import CurveAuth


class HeartbeatPublisher:
    """Publishes heartbeats of the replicas of one process."""

    def __init__(self) -> None:
        self._sources: list[tuple[zmq.Socket[bytes], Callable[[], wire.Heartbeat]]] = []
        self._thread = threading.Thread(target=self._publish, name="heartbeat", daemon=True)

    def bind(self, address: str, source: Callable[[], wire.Heartbeat], auth: CurveAuth | None = None) -> str:
        """Publish heartbeats from `source` on `address`; return the bound address."""
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUB)
        if auth:
            auth.protect(socket)
        socket.bind(address)
        self._sources.append((socket, source))
        return socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def start(self) -> None:
        """Start publishing; no further `bind` is allowed."""
        self._thread.start()

    def _publish(self) -> None:
        while True:
            for socket, source in self._sources:
                socket.send(wire.encode(source()))
            time.sleep(wire.HEARTBEAT_INTERVAL_S)
