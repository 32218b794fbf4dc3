"""Input and result of the compliance tests."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness_llm.loadgen.logs import Answer


@dataclass(frozen=True)
class Evidence:
    """Answers of one compliance run, and the bounds of the test.

    Attributes:
        answers: from LoadGen's accuracy log.
        scenario: name of the scenario in the tree.
        eos_ids: end-of-sequence token ids.
        bounds: bounds of the test by name, from the rules of the round.
        score: returns the score of the answers in percent; called only by tests of accuracy.
    """

    answers: Sequence[Answer]
    scenario: str
    eos_ids: Collection[int]
    bounds: Mapping[str, float]
    score: Callable[[], float]


class Verdict(Protocol):
    """Verdict of a compliance test on a run."""

    @property
    def passed(self) -> bool:
        """Whether the run passes."""

    @property
    def failures(self) -> list[str]:
        """Reasons of a failure, one clause each."""

    def render(self) -> str:
        """Text of the verdict file, with the lines that the official checker reads."""
