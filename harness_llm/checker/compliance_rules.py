"""Rules on the compliance tests of a result; open owes none, so that they are advice there."""

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness_llm.checker.findings import Basis, Fault, Rule, advised, forbidden, rejected, rule
from harness_llm.checker.submission_tree import Result
from harness_llm.errors import ConfigError
from harness_llm.evaluate.compliance import test06
from harness_llm.loadgen.logs import ACCURACY, DETAIL, Answer, DetailLog, parse_detail, read_accuracy_log

_SHOWN = 3
_SCORE = re.compile(r"^Accuracy score: (\d+(?:\.\d+)?)$", re.MULTILINE)
_UNVERIFIED = advised("compliance/README.md:13, 27")
"""For a log that cannot be verified: the official checker reads the verdict alone."""


def _present(result: Result) -> list[tuple[str, Path]]:
    """The tests that the benchmark asks for and that are there, and their folders."""
    rules = result.rules
    tests = ((test, result.compliance(test)) for test in (*rules.compliance, *rules.checker_compliance))
    return [(test, folder) for test, folder in tests if folder.is_dir()]


def _evidence(result: Result, wanted: str, name: str) -> Path | None:
    """The file `name` of the run of one test, where the tree holds it."""
    packed = result.round.compliance[wanted].packed if wanted in result.round.compliance else {}
    places = (folder / place for test, folder in _present(result) if test == wanted for place in packed)
    return next((place for place in places if place.name == name and place.is_file()), None)


@rule("compliance", rejected("compliance_check.py, dir_exists_check; constants.py:311-328"))
def compliance(result: Result) -> Iterator[Fault]:
    """A compliance test is missing."""
    present, rules = {test for test, _ in _present(result)}, result.rules
    for test in (*rules.compliance, *rules.checker_compliance):
        if result.submitter.enforced and test not in present:
            hint = "" if test in rules.compliance else "the round itself asks for none (compliance/README.md)"
            yield Fault(result.compliance(test), f"{test} of each scenario", "no such folder", hint)


@rule(
    "compliance-verdict",
    rejected("compliance_check.py, accuracy_check"),
    hint="mend what it names and run the test again",
)
def compliance_verdict(result: Result) -> Iterator[Fault]:
    """A compliance test did not pass."""
    for test, folder in _present(result):
        facts = result.round.compliance[test]
        path = folder / facts.verdict
        text = path.read_text(errors="replace") if path.is_file() else ""
        lines = {line.strip() for line in text.splitlines()}
        held = lines if facts.whole_lines else text
        for group in facts.passes:
            if not any(wanted in held for wanted in group):
                subject = group[0].rpartition(" ")[0]
                found = next((line for line in sorted(lines) if line.startswith(subject)), "no such line")
                yield Fault(path, " or ".join(group), found)


@rule("compliance-file", forbidden("compliance/README.md:13, 27"), hint="take it from the test's run")
def compliance_file(result: Result) -> Iterator[Fault]:
    """A file of a compliance test is missing."""
    for test, folder in _present(result):
        for place in result.round.compliance[test].packed:
            if not (folder / place).is_file():
                yield Fault(folder / place, "a file", "none")


@rule("test06-log", forbidden("compliance/TEST06/README.md:11-14"), hint="the answers must be what LoadGen was told")
def test06_log(result: Result) -> Iterator[Fault]:
    """The log of TEST06 does not confirm its verdict."""
    path = _evidence(result, "TEST06", ACCURACY)
    if path is None:
        return
    eos_ids = result.rules.eos_ids
    try:
        answers = _as_claimed(read_accuracy_log(path))
        verdict = test06.verify(answers, result.scenario, eos_ids, str(path))
    except ConfigError as error:
        yield Fault(path, error.expected or "answers", error.found or error.what, error.hint, _UNVERIFIED)
        return
    if verdict.failures:
        more = len(verdict.failures) - _SHOWN
        found = "; ".join(verdict.failures[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        yield Fault(
            path, "first token, end and length as claimed", found, basis=_test06_basis(verdict, answers, eos_ids)
        )


def _as_claimed(answers: Sequence[Answer]) -> list[Answer]:
    """The answers with ids of int32 or int64, whichever fits the reported token counts.

    run_verification.py of TEST06 has an option for it (-d), whose value is in no file of a tree.
    """
    if not all(answer.token_count is not None and len(answer.ids) == 2 * answer.token_count for answer in answers):
        return list(answers)
    return [
        replace(
            answer, ids=answer.ids.view(np.int64), first=None if answer.first is None else answer.first.view(np.int64)
        )
        for answer in answers
    ]


def _test06_basis(verdict: test06.Verdict, answers: Sequence[Answer], eos_ids: Collection[int]) -> Basis | None:
    """An end-of-sequence id inside of an answer is odd, and passes the official script."""
    broken = verdict.first_token is False or not verdict.length or any(_ends_twice(a, eos_ids) for a in answers)
    return None if broken else _UNVERIFIED


def _ends_twice(answer: Answer, eos_ids: Collection[int]) -> bool:
    last = answer.ids[-2:].tolist()
    return len(last) > 1 and set(last) <= set(eos_ids)


@rule(
    "test07-score",
    forbidden("compliance/TEST07/gpt-oss-120b/audit.config"),
    hint="score the answers of the test's run again",
)
def test07_score(result: Result) -> Iterator[Fault]:
    """The score of TEST07 does not confirm its verdict."""
    for test, folder in _present(result):
        facts = result.round.compliance[test]
        path, least = folder / facts.verdict, facts.bounds.get("accuracy_threshold")
        if least is not None and path.is_file():
            scores = _SCORE.findall(path.read_text(errors="replace"))
            if not scores or float(scores[-1]) < least:
                basis = None if scores else _UNVERIFIED
                yield Fault(path, f"Accuracy score: {least:g} or more", scores[-1] if scores else "none", basis=basis)


@rule(
    "test09-length",
    forbidden("compliance/TEST09/gpt-oss-120b/audit.config"),
    hint="answers may not be cut, nor drawn out",
)
def test09_length(result: Result) -> Iterator[Fault]:
    """The log of TEST09 does not confirm its verdict."""
    path = _evidence(result, "TEST09", DETAIL)
    if path is not None:
        mean, bounds = _mean_length(parse_detail(path)), result.round.compliance["TEST09"].bounds
        least, most = bounds["min_output_tokens"], bounds["max_output_tokens"]
        if not least <= mean <= most:
            basis = _UNVERIFIED if math.isnan(mean) else None
            yield Fault(path, f"{least:g} to {most:g} tokens per answer", f"{mean:.2f}", basis=basis)


def _mean_length(log: DetailLog) -> float:
    """Tokens per answer; LoadGen leaves one sample out of the rate of a Server run (loadgen/results.cc:413-414)."""
    left_out = {"Offline": 0, "Server": 1}.get(log.scenario)
    if left_out is None or not (log.tokens_per_second and log.query_count and log.samples_per_second):
        return math.nan
    return log.tokens_per_second / log.samples_per_second * (1 - left_out / log.query_count)


RESULT: tuple[Rule[Result], ...] = (
    compliance,
    compliance_verdict,
    compliance_file,
    test06_log,
    test07_score,
    test09_length,
)
