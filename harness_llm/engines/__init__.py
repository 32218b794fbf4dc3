"""Engines behind one protocol: queries go in, first tokens and whole answers come out."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from harness_llm.benchmarks import Sampling


@dataclass
class Step:
    """What one engine step brought, as (query, ids) pairs."""

    first: list[tuple[int, int]] = field(default_factory=list)
    finished: list[tuple[int, list[int]]] = field(default_factory=list)


class Engine(Protocol):
    """A loop of add and step over one tensor-parallel group."""

    def configure(self, sampling: Sampling, *, stream: bool) -> None:
        """Set how the next queries are sampled, and whether first tokens are reported."""

    def add(self, query: int, prompt: list[int], kind: str = "") -> None:
        """Take in one query of a `kind` of samples; raises ValueError when the prompt cannot be served."""

    def step(self) -> Step:
        """Advance all queries by one scheduling step; raises ValueError where an answer was cut."""

    @property
    def busy(self) -> bool:
        """Whether any query is unfinished."""

    def abort(self) -> None:
        """Drop all queries."""


def build_engine(name: str, checkpoint: str, llm_config: dict[str, Any]) -> Engine:
    """Load the engine called `name`; takes seconds to minutes."""
    if name == "vllm":
        from harness_llm.engines.vllm import VllmEngine  # noqa: PLC0415 - loads torch

        return VllmEngine(checkpoint, llm_config)
    if name == "transformers":
        from harness_llm.engines.transformers import TransformersEngine  # noqa: PLC0415 - loads torch

        return TransformersEngine(checkpoint, llm_config)
    raise ValueError(f"no engine {name}")


@dataclass(frozen=True)
class EngineFacts:
    """What an engine can do."""

    beams: bool
    streams: bool
    stop_sequences: bool


ENGINES = {
    "vllm": EngineFacts(beams=False, streams=True, stop_sequences=True),
    "transformers": EngineFacts(beams=True, streams=False, stop_sequences=False),
}
