"""TEST06: consistency of answers (compliance/TEST06/run_verification.py).

Three checks: an answer begins with the reported first token, contains an end-of-sequence id only as its last token,
and has the reported number of tokens. The official script supports one end-of-sequence id, compares it as a string if
it is given as an option, and checks only the end of an answer.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np

from harness_llm.evaluate.compliance.evidence import Evidence
from harness_llm.loadgen.logs import Answer, DamagedLog


@dataclass(frozen=True)
class Verdict:
    """Result of each check; `first_token` is None in Offline. `failures` contain the sample indices."""

    first_token: bool | None
    eos: bool
    length: bool
    failures: list[str]

    @property
    def passed(self) -> bool:
        """Whether all checks passed or were skipped."""
        return self.first_token is not False and self.eos and self.length

    def render(self) -> str:
        """Text of verify_accuracy.txt, with the lines that the official checker reads."""
        first = "Skipped" if self.first_token is None else self.first_token
        return (
            f"First token check pass: {first}\n"
            f"EOS check pass: {self.eos}\n"
            f"Sample length check pass: {self.length}\n"
            f"TEST06 verification {'complete' if self.passed else 'failed'}\n"
        )


def verify(entries: Iterable[Answer], scenario: str, eos_ids: Collection[int], where: str = "") -> Verdict:
    """Verify answers; the check of first tokens is skipped in Offline, where LoadGen logs none.

    Args:
        where: name of the log, for messages.

    Raises:
        DamagedLog: the log contains no answers.
    """
    answers = list(entries)
    if not answers:
        raise DamagedLog("no answers in the log of TEST06", where=where, hint="run TEST06 with its audit.config")
    first = None if scenario == "Offline" else _failures(answers, _first_token_failure)
    eos = _failures(answers, lambda answer: _eos_failure(answer, eos_ids))
    length = _failures(answers, _length_failure)
    return Verdict(
        first_token=None if first is None else not first,
        eos=not eos,
        length=not length,
        failures=[*(first or []), *eos, *length],
    )


def judge(evidence: Evidence) -> Verdict:
    """Judge a run."""
    return verify(evidence.answers, evidence.scenario, evidence.eos_ids)


def _failures(answers: list[Answer], check: Callable[[Answer], str | None]) -> list[str]:
    return [f"sample {answer.qsl_idx}: {text}" for answer in answers if (text := check(answer))]


def _first_token_failure(answer: Answer) -> str | None:
    if answer.first is None or not len(answer.first):
        return "no reported first token"
    head = answer.ids[: len(answer.first)]
    if np.array_equal(head, answer.first):
        return None
    return f"reported first token {answer.first.tolist()}, but the answer begins with {head.tolist()}"


def _eos_failure(answer: Answer, eos_ids: Collection[int]) -> str | None:
    positions = np.flatnonzero(np.isin(answer.ids, list(eos_ids))).tolist()
    if not positions or positions == [len(answer.ids) - 1]:
        return None
    return f"end-of-sequence ids at {positions} of {len(answer.ids)} tokens; allowed only as the last token"


def _length_failure(answer: Answer) -> str | None:
    if answer.token_count == len(answer.ids):
        return None
    return f"{answer.token_count} reported tokens, but the answer has {len(answer.ids)}"
