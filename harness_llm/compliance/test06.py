"""TEST06: answers are consistent (compliance/TEST06/run_verification.py).

Three checks: an answer begins with the token reported first, has at most one end-of-sequence id, as its last,
and is as long as was claimed. The official script knows one end-of-sequence id, which it compares as a
string where it is given, and looks only at the end of an answer.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness_llm.errors import ConfigError
from harness_llm.loadgen.logs import Answer, read_accuracy_log
from harness_llm.rules.rounds import ComplianceTest

VERDICT = "verify_accuracy.txt"


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


def verify_log(path: Path, scenario: str, eos_ids: Collection[int]) -> Verdict:
    """Verify the mlperf_log_accuracy.json of a TEST06 run.

    Raises:
        ConfigError: the log cannot be read or holds no answer.
    """
    entries = read_accuracy_log(path)
    if not entries:
        raise ConfigError("a TEST06 log holds no answers", where=str(path), hint="run TEST06 with its audit.config")
    return verify(entries, scenario, eos_ids)


def verify(entries: Iterable[Answer], scenario: str, eos_ids: Collection[int]) -> Verdict:
    """Verify answers; in Offline nobody reports first tokens, so that check is skipped."""
    answers = list(entries)
    first = None if scenario == "Offline" else _faults(answers, _first_token_fault)
    eos = _faults(answers, lambda answer: _eos_fault(answer, eos_ids))
    length = _faults(answers, _length_fault)
    return Verdict(
        first_token=None if first is None else not first,
        eos=not eos,
        length=not length,
        failures=[*(first or []), *eos, *length],
    )


def render(verdict: Verdict) -> str:
    """verify_accuracy.txt, line by line as the official checker looks for it."""
    first = "Skipped" if verdict.first_token is None else verdict.first_token
    return (
        f"First token check pass: {first}\n"
        f"EOS check pass: {verdict.eos}\n"
        f"Sample length check pass: {verdict.length}\n"
        f"TEST06 verification {'complete' if verdict.passed else 'failed'}\n"
    )


def audit_config(test: ComplianceTest) -> str:
    """audit.config, which LoadGen reads after user.conf and lets win."""
    return "".join(f"*.*.{key} = {value}\n" for key, value in test.audit.items())


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
