import struct

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_llm.protocol import messages as wire
from harness_llm.protocol.kv_cache import KvCache

REQUESTS = [
    wire.Attach(3, "demo/Server/performance", stream=True, sampling='{"max_tokens": 9}'),
    wire.Submit(3, [2**63, 7], [1, 2], wire.pack_tokens([[5], [6, 7]]), ["", "MBXP"], [0, 1]),
    wire.Detach(3),
]
REPLIES = [
    wire.Idle(3, None, None),
    wire.Idle(3, {"cache_hits": 0.0, "speculated": 2.0}, KvCache(tokens=4096.0, blocks=32.0, preemptions=0.0)),
    wire.Answers(3, [7], wire.pack_tokens([[5]]), [2**63], [2], wire.pack_tokens([[6, 2]])),
    wire.Fault(3, "prompt too long"),
]


@pytest.mark.parametrize("message", REQUESTS, ids=lambda m: type(m).__name__)
def test_replica_decodes_messages_of_loadgens_process(message: wire.Request) -> None:
    assert wire.decode_request(wire.encode(message)) == message


@pytest.mark.parametrize("message", REPLIES, ids=lambda m: type(m).__name__)
def test_loadgens_process_decodes_messages_of_a_replica(message: wire.Reply) -> None:
    assert wire.decode_reply(wire.encode(message)) == message


def test_messages_of_the_wrong_side_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        wire.decode_request(wire.encode(wire.Idle(1, {}, None)))
    with pytest.raises(msgspec.ValidationError):
        wire.decode_reply(wire.encode(REQUESTS[1]))


@given(st.lists(st.lists(st.integers(0, 2**31 - 1))))
def test_tokens_are_little_endian_int32_end_to_end(sequences: list[list[int]]) -> None:
    flat = [token for ids in sequences for token in ids]
    packed = wire.pack_tokens(sequences)
    assert packed == struct.pack(f"<{len(flat)}i", *flat)
    assert np.frombuffer(packed, dtype="<i4").tolist() == flat
