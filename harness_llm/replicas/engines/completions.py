"""OpenAI's completions with token ids: request fields, and parsing of chunks into an answer. Pure.

An answer consists of exactly the ids that the server sent; an incomplete answer raises ValueError.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from harness_llm.config.benchmark import Sampling

DONE = b"[DONE]"
_DATA = b"data:"
# Other lines of server-sent events (the HTML standard, 9.2.6).
_OTHER_FIELDS = (b":", b"event:", b"id:", b"retry:")
_SHOWN = 200

_TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class Choice(msgspec.Struct):
    """The single choice of a chunk or of a whole answer."""

    token_ids: list[_TokenId] | None = None
    finish_reason: str | None = None


class Usage(msgspec.Struct):
    """Token counts of the server."""

    completion_tokens: int | None = None


class Chunk(msgspec.Struct):
    """A part of an answer, or an error."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(Chunk).decode


def request_fields(model: str, sampling: Sampling, extra: Mapping[str, Any], *, stream: bool) -> dict[str, Any]:
    """Return the body of a request without its prompt.

    With `ignore_eos`, SGLang (srt/managers/schedule_batch.py, check_finished) and TensorRT-LLM
    (executor/base_worker.py) ignore `stop_token_ids` too, so that every answer has `max_tokens`. Without it, an answer
    may end with another end-of-sequence id of the model, which `Answer.whole` refuses.
    """
    fields = {
        "model": model,
        "max_tokens": sampling.max_tokens,
        "min_tokens": sampling.min_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stop_token_ids": list(sampling.stop_token_ids),
        "ignore_eos": not sampling.stop_token_ids,
        "stream": stream,
        **extra,
    }
    if sampling.top_k:  # 0 means off here, -1 in some servers
        fields["top_k"] = sampling.top_k
    return fields


def fewer_tokens(sampling: Sampling, reported: int) -> dict[str, int]:
    """Return the changed fields of a request whose answer has `reported` tokens already."""
    if not reported:
        return {}
    return {"max_tokens": sampling.max_tokens - reported, "min_tokens": max(sampling.min_tokens - reported, 0)}


def parse(text: bytes) -> Chunk:
    """Parse one JSON document of an answer."""
    try:
        chunk = _decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"no completion with token ids from the server ({error}): {shown(text)}") from error
    if chunk.error is not None:
        raise ValueError(f"error from the server: {chunk.error}")
    return chunk


def parse_event(line: bytes) -> Chunk | None:
    """Parse one line of a stream; None if it contains no chunk."""
    line = line.strip()
    if not line.startswith(_DATA):
        if line and not line.startswith(_OTHER_FIELDS):
            raise ValueError(f"no server-sent event in a line from the server: {shown(line)}")
        return None
    data = line[len(_DATA) :].strip()
    return None if data == DONE else parse(data)


def shown(text: bytes) -> str:
    """Return the start of what a server sent, for an error message."""
    return repr(text[:_SHOWN].decode(errors="replace"))


class Answer:
    """An answer while its chunks arrive."""

    def __init__(self, sampling: Sampling, vocabulary: int, reported: Sequence[int] = ()) -> None:
        """Expect ids below `vocabulary`; start with the `reported` ids."""
        self.ids: list[int] = list(reported)
        self._reported = len(reported)
        self._sampling = sampling
        self._vocabulary = vocabulary
        self._reason: str | None = None
        self._counted: int | None = None

    def take(self, chunk: Chunk) -> None:
        """Append the ids of the next chunk."""
        if chunk.usage:
            self._counted = chunk.usage.completion_tokens
        for choice in chunk.choices:
            if choice.token_ids is None:
                raise ValueError("chunk without token ids from the server")
            if self._reason:
                raise ValueError("data after the end of an answer from the server")
            self._reason = choice.finish_reason
            self._extend(choice.token_ids)

    def _extend(self, ids: list[int]) -> None:
        if ids and max(ids) >= self._vocabulary:
            raise ValueError(f"token id {max(ids)} from the server; the vocabulary has {self._vocabulary}")
        self.ids += ids
        if len(self.ids) > self._sampling.max_tokens:
            raise ValueError(f"more than max_tokens, {self._sampling.max_tokens}, from the server")

    def whole(self) -> list[int]:
        """Return all ids after the last chunk; raise ValueError if the answer is incomplete.

        A complete answer ends with a stop token or has max_tokens ids.
        """
        sent = len(self.ids) - self._reported
        if self._counted not in (None, sent):
            raise ValueError(f"the server counted {self._counted} tokens and sent {sent}")
        stopped = self._reason == "stop" and self.ids[-1:] and self.ids[-1] in self._sampling.stop_token_ids
        if stopped or (self._reason == "length" and len(self.ids) == self._sampling.max_tokens):
            return self.ids
        raise ValueError(
            f"incomplete or inexact answer: {len(self.ids)} tokens, the last {self.ids[-1:]}, "
            f"finish_reason {self._reason}"
        )
