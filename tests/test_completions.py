"""Requests and answers of OpenAI's completions with token ids; test_openai_engine.py has the faults of servers."""

import pytest

from harness_llm.config.benchmark import Sampling
from harness_llm.config.servers import server_kinds
from harness_llm.replicas.engines.completions import Answer, Chunk, parse, parse_event, request_fields

SAMPLING = Sampling(temperature=0.5, top_p=0.9, top_k=7, min_tokens=1, max_tokens=3, stop_token_ids=(2, 9))


def test_request_contains_all_sampling_settings() -> None:
    assert request_fields("m", SAMPLING, {"return_token_ids": True}, stream=True) == {
        "model": "m", "max_tokens": 3, "min_tokens": 1, "temperature": 0.5, "top_p": 0.9, "top_k": 7,
        "stop_token_ids": [2, 9], "ignore_eos": False, "stream": True, "return_token_ids": True,
    }  # fmt: skip
    assert "top_k" not in request_fields("m", SAMPLING.changed({"top_k": 0}), {}, stream=False)


@pytest.mark.parametrize("kind", server_kinds())
def test_stop_tokens_end_the_answers_of_every_server(kind: str) -> None:
    """All but vLLM apply ignore_eos to stop_token_ids too."""
    extra = server_kinds()[kind].request
    assert request_fields("m", SAMPLING, extra, stream=True)["ignore_eos"] is (kind == "vllm")
    assert request_fields("m", SAMPLING.changed({"stop_token_ids": ()}), extra, stream=True)["ignore_eos"] is True


@pytest.mark.parametrize("line", [b"\n", b": ping\n", b"event: x\n", b"id: 1\n", b"retry: 5\r\n", b"data: [DONE]\n"])
def test_lines_without_a_chunk_are_ignored(line: bytes) -> None:
    assert parse_event(line) is None


def test_unknown_fields_of_an_event_are_ignored() -> None:
    chunk = parse_event(
        b'data:{"id":"c","choices":[{"text":"x","token_ids":[5],"stop_reason":2,"prompt_token_ids":[1]}]}'
    )
    assert isinstance(chunk, Chunk)
    assert chunk.choices[0].token_ids == [5]


def answer(*chunks: bytes) -> Answer:
    made = Answer(SAMPLING, 100)
    for chunk in chunks:
        made.take(parse(b'{"choices":[' + chunk + b"]}"))
    return made


@pytest.mark.parametrize(
    ("chunks", "ids"),
    [
        ([b'{"token_ids":[5,2],"finish_reason":"stop"}'], [5, 2]),
        ([b'{"token_ids":[5]}', b'{"token_ids":[6,9],"finish_reason":"stop"}'], [5, 6, 9]),
        ([b'{"token_ids":[5,6,7]}', b'{"token_ids":[],"finish_reason":"length"}'], [5, 6, 7]),
    ],
)
def test_complete_answer_is_accepted(chunks: list[bytes], ids: list[int]) -> None:
    assert answer(*chunks).whole() == ids


@pytest.mark.parametrize(
    "chunk",
    [
        b'{"token_ids":[5,6],"finish_reason":"stop"}',  # the stop token was cut off
        b'{"token_ids":[5,6],"finish_reason":"length"}',
        b'{"token_ids":[],"finish_reason":"stop"}',
        b'{"token_ids":[5,6,2]}',
    ],
)
def test_incomplete_answer_is_refused(chunk: bytes) -> None:
    with pytest.raises(ValueError, match="incomplete or inexact answer"):
        answer(chunk).whole()
