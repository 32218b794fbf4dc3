"""The messages between the LoadGen process and a replica.

Token ids travel as little-endian int32 bytes, many queries to a message. Every message carries the generation of the
attachment it belongs to, so that nothing of a cell that is over reaches the next one.
"""

from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from harness_llm.engines import Counters


class Attach(msgspec.Struct, tag="attach", array_like=True, frozen=True):
    """LoadGen process to replica: drop all queries, then serve this cell with this sampling (JSON)."""

    generation: int
    cell: str
    stream: bool
    sampling: str


class Detach(msgspec.Struct, tag="detach", array_like=True, frozen=True):
    """LoadGen process to replica: the cell is over."""

    generation: int


class Idle(msgspec.Struct, tag="idle", array_like=True, frozen=True):
    """Replica to LoadGen process: holding no query, and what its engine has counted until now."""

    generation: int
    counters: Counters | None


class Submit(msgspec.Struct, tag="submit", array_like=True, frozen=True):
    """LoadGen process to replica: new queries, their prompts end to end in `tokens`.

    `kinds` of the samples are told only where the sampling minds them.
    """

    generation: int
    queries: list[int]
    lengths: list[int]
    tokens: bytes
    kinds: list[str]


class Answers(msgspec.Struct, tag="answers", array_like=True, frozen=True):
    """Replica to LoadGen process: first tokens (one id each) and whole answers, as generated."""

    generation: int
    first_queries: list[int]
    first_tokens: bytes
    queries: list[int]
    lengths: list[int]
    tokens: bytes


class Fault(msgspec.Struct, tag="fault", array_like=True, frozen=True):
    """Replica to LoadGen process: a query that the engine refused, or why it can take none."""

    generation: int
    text: str


Request = Attach | Submit | Detach
Reply = Idle | Answers | Fault

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode


@dataclass(frozen=True)
class Answer:
    """One query's answer; `ids` exactly as generated, the end-of-sequence token included."""

    query: int
    ids: npt.NDArray[np.int32]


def pack_tokens(sequences: list[list[int]]) -> bytes:
    """All ids end to end, little-endian int32."""
    return np.fromiter((token for ids in sequences for token in ids), dtype="<i4").tobytes()
