"""Who may talk to a replica over TCP."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from harness_llm.protocol.curve import CurveAuth, KeyPair, new_key_pair, read_key_pair, use_curve, write_key_pair

LOOPBACK = "tcp://127.0.0.1:*"
SOON_MS = 500
PATIENCE_MS = 10_000


class Door:
    """A socket behind a gate, and clients of it."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", pair: KeyPair) -> None:
        self._context = context
        self._sockets: list[zmq.Socket[bytes]] = []
        self.pair = pair
        self.auth = CurveAuth(pair.public)
        self.socket = self.socket_of(zmq.ROUTER)
        self.auth.protect(self.socket)
        self.socket.bind(LOOPBACK)

    def socket_of(self, kind: int) -> "zmq.Socket[bytes]":
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        self._sockets.append(socket)
        return socket

    def knock(self, pair: KeyPair | None, key: str) -> bool:
        """Whether a client's message arrives."""
        client = self.socket_of(zmq.DEALER)
        if pair:
            use_curve(client, pair, key)
        client.connect(self.socket.getsockopt_string(zmq.LAST_ENDPOINT))
        client.send(b"hello")
        arrived = bool(self.socket.poll(PATIENCE_MS if pair == self.pair and key == self.auth.key else SOON_MS))
        if arrived:
            assert self.socket.recv_multipart()[1] == b"hello"
        return arrived

    def close(self) -> None:
        self.auth.close()
        for socket in self._sockets:
            socket.close()


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    monkeypatch.setattr(zmq.Context, "instance", lambda: context)
    door = Door(context, new_key_pair())
    yield door
    door.close()
    context.term()


def test_who_holds_both_keys_comes_in(door: Door) -> None:
    assert door.knock(door.pair, door.auth.key)


def test_nobody_else_does(door: Door) -> None:
    other = new_key_pair()
    assert not door.knock(None, "")
    assert not door.knock(other, door.auth.key)
    assert not door.knock(door.pair, other.public)
    assert not door.knock(KeyPair(door.pair.public, other.secret), door.auth.key)
    assert door.knock(door.pair, door.auth.key)


def test_what_is_published_is_heard_by_who_holds_both_keys_alone(door: Door) -> None:
    heartbeat_publisher = door.socket_of(zmq.PUB)
    door.auth.protect(heartbeat_publisher)
    heartbeat_publisher.bind(LOOPBACK)
    listeners = [door.socket_of(zmq.SUB) for _ in range(2)]
    use_curve(listeners[0], door.pair, door.auth.key)
    for listener in listeners:
        listener.subscribe(b"")
        listener.connect(heartbeat_publisher.getsockopt_string(zmq.LAST_ENDPOINT))
    for _ in range(PATIENCE_MS // 20):
        heartbeat_publisher.send(b"beat")
        if listeners[0].poll(20):
            break
    assert listeners[0].recv(zmq.NOBLOCK) == b"beat"
    assert not listeners[1].poll(SOON_MS)


def test_a_pair_is_kept_where_nobody_else_reads(tmp_path: Path) -> None:
    pair, file = new_key_pair(), tmp_path / "client.keys"
    write_key_pair(pair, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_key_pair(file) == pair
    with pytest.raises(FileExistsError):
        write_key_pair(pair, file)
