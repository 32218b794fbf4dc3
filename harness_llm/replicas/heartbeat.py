"""The heart: a thread that tells, whatever an engine does, that its replicas live and how far they are."""

import threading
import time
from collections.abc import Callable

import zmq

from harness_llm.protocol import messages as wire
from harness_llm.protocol.curve import Gate


class HeartbeatPublisher:
    """Beats for the replicas of one process."""

    def __init__(self) -> None:
        """Heartbeat for nobody yet."""
        self._sources: list[tuple[zmq.Socket[bytes], Callable[[], wire.Heartbeat]]] = []
        self._thread = threading.Thread(target=self._beat, name="heartbeat_publisher", daemon=True)

    def bind(self, address: str, source: Callable[[], wire.Heartbeat], gate: Gate | None = None) -> str:
        """Tell at `address` what `source` says; the address where that can be heard."""
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUB)
        if gate:
            gate.guard(socket)
        socket.bind(address)
        self._sources.append((socket, source))
        return socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def start(self) -> None:
        """Begin; nothing is bound any more."""
        self._thread.start()

    def _beat(self) -> None:
        while True:
            for socket, source in self._sources:
                socket.send(wire.encode(source()))
            time.sleep(wire.BEAT_EVERY_S)
