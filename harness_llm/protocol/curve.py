"""CURVE keys: encryption and mutual authentication of connections between nodes (ZeroMQ's CURVE).

No secret is transmitted: a replica makes its own key pair and sends the public key with its endpoint; the key pair of
LoadGen's process stays on its machine. Sockets in the replica pool's folder need no keys.
"""

import os
from pathlib import Path

import msgspec
import zmq
from zmq.auth.thread import ThreadAuthenticator

_OWNER_ONLY = 0o600


class KeyPair(msgspec.Struct, frozen=True):
    """Public and secret key, Z85-encoded."""

    public: str
    secret: str


def new_key_pair() -> KeyPair:
    """Generate a key pair."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def write_key_pair(keys: KeyPair, file: Path) -> None:
    """Write `keys` to a new file that only its owner can read."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "wb") as secret:
        secret.write(msgspec.json.encode(keys))


def read_key_pair(file: Path) -> KeyPair:
    """Read the file of `write_key_pair`."""
    return msgspec.json.decode(file.read_bytes(), type=KeyPair)


class CurveAuth:
    """Access control of this process's sockets: accepts one client."""

    def __init__(self, client: str) -> None:
        """Generate the server's keys; `client` is the public key of the accepted client."""
        self._client = client
        self._keys = new_key_pair()
        self._authenticator = ThreadAuthenticator(zmq.Context.instance())
        self._authenticator.start()
        self._authenticator.configure_curve_callback(credentials_provider=self)

    @property
    def key(self) -> str:
        """The server's public key, which a client needs."""
        return self._keys.public

    def callback(self, _domain: str, key: bytes) -> bool:
        """Return whether the client with public `key` is accepted; called by ZeroMQ."""
        return key.decode() == self._client

    def protect(self, socket: "zmq.Socket[bytes]") -> None:
        """Require CURVE on a socket, before it is bound."""
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = self._keys.public.encode(), self._keys.secret.encode()

    def close(self) -> None:
        """Stop the authenticator."""
        self._authenticator.stop()


def use_curve(socket: "zmq.Socket[bytes]", keys: KeyPair, server_key: str) -> None:
    """Connect with `keys` to the server of public key `server_key`; applies to connections made afterwards."""
    socket.curve_serverkey = server_key.encode()
    socket.curve_publickey, socket.curve_secretkey = keys.public.encode(), keys.secret.encode()
