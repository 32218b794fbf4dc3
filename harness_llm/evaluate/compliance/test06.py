"""TEST06: answers are consistent (compliance/TEST06/run_verification.py).

Three checks: an answer begins with the token reported first, has at most one end-of-sequence id, as its last,
and is as long as was claimed. The official script knows one end-of-sequence id, which it compares as a
string where it is given, and looks only at the end of an answer.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np

from harness_llm.errors import ConfigError
from harness_llm.evaluate.compliance.evidence import Evidence
from harness_llm.loadgen.logs import Answer


@dataclass(frozen=True)
class Verdict:
    """Whether each check passed; Offline skips `first_token`, then None. `failures` name the samples."""

    first_token: bool | None
    eos: bool
    length: bool
    failures: list[str]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return self.first_token is not False and self.eos and self.length

    def render(self) -> str:
        """verify_accuracy.txt, line by line as the official checker looks for it."""
        first = "Skipped" if self.first_token is None else self.first_token
        return (
            f"First token check pass: {first}\n"
            f"EOS check pass: {self.eos}\n"
            f"Sample length check pass: {self.length}\n"
            f"TEST06 verification {'complete' if self.passed else 'failed'}\n"
        )


def verify(entries: Iterable[Answer], scenario: str, eos_ids: Collection[int], where: str = "") -> Verdict:
    """Verify answers; in Offline nobody reports first tokens, so that check is skipped.

    Args:
        where: the log's name, for messages.

    Raises:
        ConfigError: there are no answers.
    """
    answers = list(entries)
    if not answers:
        raise ConfigError("a TEST06 log holds no answers", where=where, hint="run TEST06 with its audit.config")
    first = None if scenario == "Offline" else _faults(answers, _first_token_fault)
    eos = _faults(answers, lambda answer: _eos_fault(answer, eos_ids))
    length = _faults(answers, _length_fault)
    return Verdict(
        first_token=None if first is None else not first,
        eos=not eos,
        length=not length,
        failures=[*(first or []), *eos, *length],
    )


def judge(evidence: Evidence) -> Verdict:
    """Verify a run."""
    return verify(evidence.answers, evidence.scenario, evidence.eos_ids)


def _faults(answers: list[Answer], fault: Callable[[Answer], str | None]) -> list[str]:
    return [f"sample {answer.qsl_idx}: {text}" for answer in answers if (text := fault(answer))]


def _first_token_fault(answer: Answer) -> str | None:
    if answer.first is None or not len(answer.first):
        return "no first token was reported"
    head = answer.ids[: len(answer.first)]
    if np.array_equal(head, answer.first):
        return None
    return f"the first token reported was {answer.first.tolist()}, but the answer begins with {head.tolist()}"


def _eos_fault(answer: Answer, eos_ids: Collection[int]) -> str | None:
    """An end-of-sequence id anywhere but at the end is one the model went on after."""
    places = np.flatnonzero(np.isin(answer.ids, list(eos_ids))).tolist()
    if not places or places == [len(answer.ids) - 1]:
        return None
    return f"end-of-sequence ids at {places} of {len(answer.ids)} tokens, where one at the end is right"


def _length_fault(answer: Answer) -> str | None:
    if answer.token_count == len(answer.ids):
        return None
    return f"{answer.token_count} tokens were claimed, but the answer has {len(answer.ids)}"
