"""What compliance tests judge, and what each of them answers."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness_llm.loadgen.logs import Answer


@dataclass(frozen=True)
class Evidence:
    """What one run of a compliance test left, and what it is held to; each test looks at its part.

    Attributes:
        answers: as LoadGen logged them.
        scenario: as the tree names it.
        eos_ids: what ends an answer.
        bounds: those of the test, by name, as the round gives them.
        score: scores the answers, in percent; asked for only by a test of accuracy.
    """

    answers: Sequence[Answer]
    scenario: str
    eos_ids: Collection[int]
    bounds: Mapping[str, float]
    score: Callable[[], float]


class Verdict(Protocol):
    """What a compliance test says of a run."""

    @property
    def passed(self) -> bool:
        """Whether the run passes."""

    @property
    def failures(self) -> list[str]:
        """Why it does not, one clause each."""

    def render(self) -> str:
        """The file that the official checker reads, with the lines that it looks for."""
