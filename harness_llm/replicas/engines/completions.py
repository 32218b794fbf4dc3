"""OpenAI's completions with token ids: what is asked, and how chunks become an answer. Pure.

Nothing is made up: an answer is whole, and exactly the ids that the server sent, or it is a ValueError.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from harness_llm.config.benchmark import Sampling

DONE = b"[DONE]"
_DATA = b"data:"
# Server-sent events have these lines too (the HTML standard, 9.2.6).
_OTHER_FIELDS = (b":", b"event:", b"id:", b"retry:")
_SHOWN = 200

_TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class Choice(msgspec.Struct):
    """The one choice of a chunk, or of an answer that comes whole."""

    token_ids: list[_TokenId] | None = None
    finish_reason: str | None = None


class Usage(msgspec.Struct):
    """What the server counted."""

    completion_tokens: int | None = None


class Chunk(msgspec.Struct):
    """A piece of an answer, or an error in its place."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(Chunk).decode


def request_fields(model: str, sampling: Sampling, extra: Mapping[str, Any], *, stream: bool) -> dict[str, Any]:
    """The body of a request but for its prompt.

    An answer ends with `sampling.stop_token_ids` or `max_tokens`, whatever the model's own end is: so do those of the
    engines in the replica's process.
    """
    fields = {
        "model": model,
        "max_tokens": sampling.max_tokens,
        "min_tokens": sampling.min_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stop_token_ids": list(sampling.stop_token_ids),
        "ignore_eos": True,
        "stream": stream,
        **extra,
    }
    if sampling.top_k:  # 0 is off here, -1 in some servers
        fields["top_k"] = sampling.top_k
    return fields


def fewer_tokens(sampling: Sampling, reported: int) -> dict[str, int]:
    """What a request says otherwise whose answer has `reported` tokens already."""
    if not reported:
        return {}
    return {"max_tokens": sampling.max_tokens - reported, "min_tokens": max(sampling.min_tokens - reported, 0)}


def parse(text: bytes) -> Chunk:
    """One JSON document of an answer."""
    try:
        chunk = _decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"the server sent what is no completion with token ids ({error}): {shown(text)}") from error
    if chunk.error is not None:
        raise ValueError(f"the server answered with an error: {chunk.error}")
    return chunk


def parse_event(line: bytes) -> Chunk | None:
    """One line of a stream; None where it holds no chunk."""
    line = line.strip()
    if not line.startswith(_DATA):
        if line and not line.startswith(_OTHER_FIELDS):
            raise ValueError(f"the server sent a line that is no event: {shown(line)}")
        return None
    data = line[len(_DATA) :].strip()
    return None if data == DONE else parse(data)


def shown(text: bytes) -> str:
    """The start of what a server sent, for an error."""
    return repr(text[:_SHOWN].decode(errors="replace"))


class Answer:
    """An answer in the making."""

    def __init__(self, sampling: Sampling, vocabulary: int, reported: Sequence[int] = ()) -> None:
        """Ids are below `vocabulary`; those `reported` were known before the request."""
        self.ids: list[int] = list(reported)
        self._reported = len(reported)
        self._sampling = sampling
        self._vocabulary = vocabulary
        self._reason: str | None = None
        self._counted: int | None = None

    def take(self, chunk: Chunk) -> None:
        """Add the ids of the next chunk."""
        if chunk.usage:
            self._counted = chunk.usage.completion_tokens
        for choice in chunk.choices:
            if choice.token_ids is None:
                raise ValueError("the server sent a chunk without token ids")
            if self._reason:
                raise ValueError("the server sent more after the end of an answer")
            self._reason = choice.finish_reason
            self._extend(choice.token_ids)

    def _extend(self, ids: list[int]) -> None:
        if ids and max(ids) >= self._vocabulary:
            raise ValueError(f"the server sent token id {max(ids)}, the vocabulary has {self._vocabulary}")
        self.ids += ids
        if len(self.ids) > self._sampling.max_tokens:
            raise ValueError(f"the server sent more than max_tokens, {self._sampling.max_tokens}")

    def whole(self) -> list[int]:
        """All ids, once the server has sent its last; raises ValueError where they are not a whole answer.

        An answer ends with a stop token, which is one of its ids, or has all the tokens it may have.
        """
        sent = len(self.ids) - self._reported
        if self._counted not in (None, sent):
            raise ValueError(f"the server counted {self._counted} tokens and sent {sent}")
        stopped = self._reason == "stop" and self.ids[-1:] and self.ids[-1] in self._sampling.stop_token_ids
        if stopped or (self._reason == "length" and len(self.ids) == self._sampling.max_tokens):
            return self.ids
        raise ValueError(
            f"an answer was cut or is not exact: {len(self.ids)} tokens, the last {self.ids[-1:]}, "
            f"finish_reason {self._reason}"
        )
