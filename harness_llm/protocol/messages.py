"""Messages between LoadGen's process and a replica.

Token ids are little-endian int32 bytes; one message holds many queries. Every message carries the generation of its
attachment, so that late messages of an earlier run are discarded.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import zmq

from harness_llm.protocol.counters import Counters
from harness_llm.protocol.kv_cache import KvCache
from harness_llm.protocol.token_store import Ids


class Endpoint(msgspec.Struct, frozen=True):
    """Data and heartbeat addresses of a ready replica; unique per start.

    Attributes:
        key: the replica's public CURVE key, where the addresses are TCP.
        name: of the replica; equal after a restart.
    """

    address: str
    heartbeat: str
    key: str = ""
    name: str = ""


class Attach(msgspec.Struct, tag="attach", array_like=True, frozen=True):
    """LoadGen's process to replica: abort all queries, then serve this run with this sampling (JSON)."""

    generation: int
    run_key: str
    stream: bool
    sampling: str


class Detach(msgspec.Struct, tag="detach", array_like=True, frozen=True):
    """LoadGen's process to replica: the run has finished."""

    generation: int


class Count(msgspec.Struct, tag="count", array_like=True, frozen=True):
    """LoadGen's process to replica: request `Counted`."""

    generation: int


class Counted(msgspec.Struct, tag="counted", array_like=True, frozen=True):
    """Replica to LoadGen's process: progress of its engine.

    Attributes:
        generated: tokens since the attachment.
        at: end of the engine's last step, in seconds on the replica's clock.
    """

    generation: int
    generated: int
    at: float


class Idle(msgspec.Struct, tag="idle", array_like=True, frozen=True):
    """Replica to LoadGen's process, after Attach and Detach: no query is in flight; the engine's counters."""

    generation: int
    counters: Counters | None
    kv_cache: KvCache | None


class Submit(msgspec.Struct, tag="submit", array_like=True, frozen=True):
    """LoadGen's process to replica: new queries, their prompts concatenated in `tokens`.

    Attributes:
        kinds: of the samples; empty unless the sampling depends on them.
        reported: per query, the number of ids at the end of the prompt that a failed replica generated and that were
            reported as first token; empty if all are 0.
    """

    generation: int
    queries: list[int]
    lengths: list[int]
    tokens: bytes
    kinds: list[str]
    reported: list[int]


class Answers(msgspec.Struct, tag="answers", array_like=True, frozen=True):
    """Replica to LoadGen's process: first tokens (one id each) and whole answers, as generated."""

    generation: int
    first_queries: list[int]
    first_tokens: bytes
    queries: list[int]
    lengths: list[int]
    tokens: bytes


class Fault(msgspec.Struct, tag="fault", array_like=True, frozen=True):
    """Replica to LoadGen's process: the error of a refused query or of the engine."""

    generation: int
    text: str


class Activity(msgspec.Struct, array_like=True, frozen=True):
    """Activity of an engine; None for what it does not report.

    Attributes:
        generated: tokens since the attachment.
        running: queries in the batch; `waiting` are in the engine's queue.
        kv_cache_use: share of the KV cache in use, 0 to 1.
        preemptions: since the start.
    """

    generated: int
    running: int | None = None
    waiting: int | None = None
    kv_cache_use: float | None = None
    preemptions: int | None = None


class ReplicaStatus(msgspec.Struct, array_like=True, frozen=True):
    """LoadGen's process to its parent, in a progress message, as JSON: a replica's queries and activity.

    Attributes:
        in_flight: queries sent to the replica and not answered.
        at: time of the heartbeat with `activity`, in seconds of time.perf_counter on the replica's node.
        activity: None before the first heartbeat of the run.
    """

    name: str
    in_flight: int
    at: float
    activity: Activity | None


class Heartbeat(msgspec.Struct, array_like=True, frozen=True):
    """Published by a replica every HEARTBEAT_INTERVAL_S from its own thread.

    Attributes:
        address: of the replica's endpoint.
        steps: engine steps since the start; they increase while the engine is `busy`.
        at: in seconds of time.perf_counter on the replica's node.
    """

    address: str
    generation: int
    steps: int
    busy: bool
    at: float
    activity: Activity


HEARTBEAT_INTERVAL_S = 1.0

Request = Attach | Submit | Count | Detach
Reply = Idle | Answers | Counted | Fault

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
decode_heartbeat = msgspec.msgpack.Decoder(Heartbeat).decode


_TOKEN = np.dtype("<i4")


class Answer(NamedTuple):
    """One query's answer; `ids` exactly as generated, the end-of-sequence token included."""

    query: int
    ids: npt.NDArray[np.int32]


def pack_tokens(sequences: Sequence[Ids]) -> bytes:
    """Concatenate all ids as little-endian int32."""
    return b"".join([np.asarray(ids, dtype=_TOKEN).tobytes() for ids in sequences])


def unpack_tokens(tokens: bytes, lengths: Sequence[int]) -> Iterator[npt.NDArray[np.int32]]:
    """Split what `pack_tokens` concatenated."""
    ids, start = np.frombuffer(tokens, dtype=_TOKEN), 0
    for length in lengths:
        yield ids[start : start + length]
        start += length


def received(socket: "zmq.Socket[bytes]") -> Iterator[list[bytes]]:
    """Yield the multipart messages that have arrived, without waiting.

    Reading EVENTS first takes a third of the time of a refused recv, for which pyzmq raises an exception.
    """
    while int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
        yield socket.recv_multipart()
