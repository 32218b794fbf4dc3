"""Keys of a run: what travels between nodes is encrypted, and each end knows the other (ZeroMQ's CURVE).

No secret travels: a replica makes its own pair and tells the public half with its endpoint, and the pair of LoadGen's
process stays on the machine where it runs. Sockets in the replica pool's own folder need no keys.
"""

import os
from pathlib import Path

import msgspec
import zmq
from zmq.auth.thread import ThreadAuthenticator

_OWNER_ONLY = 0o600


class Pair(msgspec.Struct, frozen=True):
    """Two halves of a key, in ZeroMQ's printable form."""

    public: str
    secret: str


def new_pair() -> Pair:
    """A pair that nobody has."""
    public, secret = zmq.curve_keypair()
    return Pair(public.decode(), secret.decode())


def write_pair(pair: Pair, file: Path) -> None:
    """Keep `pair` in a new file that nobody else may read."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "wb") as secret:
        secret.write(msgspec.json.encode(pair))


def read_pair(file: Path) -> Pair:
    """What `write_pair` kept."""
    return msgspec.json.decode(file.read_bytes(), type=Pair)


class Gate:
    """Lets one client in at the sockets of this process, and nobody else."""

    def __init__(self, client: str) -> None:
        """Make a pair of keys; `client` is the public key of who may come in."""
        self._client = client
        self._pair = new_pair()
        self._judge = ThreadAuthenticator(zmq.Context.instance())
        self._judge.start()
        self._judge.configure_curve_callback(credentials_provider=self)

    @property
    def key(self) -> str:
        """The public key that a client must know."""
        return self._pair.public

    def callback(self, _domain: str, key: bytes) -> bool:
        """ZeroMQ asks whether the holder of `key` may come in."""
        return key.decode() == self._client

    def guard(self, socket: "zmq.Socket[bytes]") -> None:
        """Guard a socket that is not bound yet."""
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = self._pair.public.encode(), self._pair.secret.encode()

    def close(self) -> None:
        """Judge nobody any more."""
        self._judge.stop()


def unlock(socket: "zmq.Socket[bytes]", pair: Pair, key: str) -> None:
    """Let a socket that is not connected yet come in at the gate with the public `key`."""
    socket.curve_serverkey = key.encode()
    socket.curve_publickey, socket.curve_secretkey = pair.public.encode(), pair.secret.encode()
