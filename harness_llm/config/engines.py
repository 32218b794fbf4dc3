"""The engines and their features."""

from dataclasses import dataclass

REPLAY = "replay"
"""The engine that computes nothing; its runs are not results."""


@dataclass(frozen=True)
class EngineFacts:
    """The features of an engine.

    Attributes:
        serves: whether it is a server with an HTTP API.
        steps: whether it counts the generated tokens of each step, which the probe needs.
        kind: of its servers, if the engine has only one kind.
    """

    beams: bool
    streams: bool
    stop_sequences: bool
    serves: bool = False
    steps: bool = False
    kind: str = ""


ENGINES = {
    "vllm": EngineFacts(beams=False, streams=True, stop_sequences=True, steps=True),
    "transformers": EngineFacts(beams=True, streams=False, stop_sequences=False),
    "openai": EngineFacts(beams=False, streams=True, stop_sequences=False, serves=True),
    "llmboost": EngineFacts(beams=False, streams=True, stop_sequences=False, serves=True, kind="llmboost"),
    REPLAY: EngineFacts(beams=True, streams=True, stop_sequences=True, steps=True),
}
