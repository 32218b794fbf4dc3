"""The engines that answer queries, and what each of them can do."""

from dataclasses import dataclass

REPLAY = "replay"
"""The engine that computes nothing; its runs are no results."""


@dataclass(frozen=True)
class EngineFacts:
    """What an engine can do.

    Attributes:
        serves: whether it is a server that is asked over HTTP.
        steps: whether it counts generated tokens step by step, which the probe needs.
        kind: of its servers, where the engine's name alone says which.
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
