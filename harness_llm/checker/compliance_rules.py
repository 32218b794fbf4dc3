"""Rules on the compliance tests of a result; in open, which does not require the tests, findings are warnings."""

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness_llm.checker.findings import Basis, Rule, Violation, advised, forbidden, rejected, rule
from harness_llm.checker.submission_tree import Result
from harness_llm.errors import ConfigError
from harness_llm.evaluate.compliance import test06
from harness_llm.loadgen.logs import ACCURACY, DETAIL, Answer, DetailLog, parse_detail, read_accuracy_log

_MAX_FAILURES_SHOWN = 3
_SCORE = re.compile(r"^Accuracy score: (\d+(?:\.\d+)?)$", re.MULTILINE)
_UNVERIFIED = advised("compliance/README.md:13, 27")
"""Basis of findings on a log that cannot be verified; the official checker reads only the verdict file."""


def _present(result: Result) -> list[tuple[str, Path]]:
    """Required tests whose folders exist, and these folders."""
    rules = result.rules
    tests = ((test, result.compliance(test)) for test in (*rules.compliance, *rules.checker_compliance))
    return [(test, folder) for test, folder in tests if folder.is_dir()]


def _evidence(result: Result, wanted: str, name: str) -> Path | None:
    """The file `name` of the run of one test; None if the tree does not contain it."""
    packed = result.round.compliance[wanted].packed if wanted in result.round.compliance else {}
    places = (folder / place for test, folder in _present(result) if test == wanted for place in packed)
    return next((place for place in places if place.name == name and place.is_file()), None)


@rule("compliance", rejected("compliance_check.py, dir_exists_check; constants.py:311-328"))
def compliance(result: Result) -> Iterator[Violation]:
    """A compliance test is missing."""
    present, rules = {test for test, _ in _present(result)}, result.rules
    for test in (*rules.compliance, *rules.checker_compliance):
        if result.submitter.enforced and test not in present:
            hint = "" if test in rules.compliance else "the round itself does not require it (compliance/README.md)"
            yield Violation(result.compliance(test), f"{test} of each scenario", "no such folder", hint)


@rule(
    "compliance-verdict",
    rejected("compliance_check.py, accuracy_check"),
    hint="correct the reported failure and run the test again",
)
def compliance_verdict(result: Result) -> Iterator[Violation]:
    """A compliance test did not pass."""
    for test, folder in _present(result):
        facts = result.round.compliance[test]
        path = folder / facts.verdict
        if not path.is_file():
            yield Violation(path, "a file", "none", "copy it from the run of the test")
            continue
        text = path.read_text(errors="replace")
        lines = {line.strip() for line in text.splitlines()}
        held = lines if facts.whole_lines else text
        for group in facts.passes:
            if not any(wanted in held for wanted in group):
                prefix = group[0].rpartition(" ")[0]
                found = next((line for line in sorted(lines) if line.startswith(prefix)), "no such line")
                yield Violation(path, " or ".join(group), found)


@rule("compliance-file", forbidden("compliance/README.md:13, 27"), hint="copy it from the run of the test")
def compliance_file(result: Result) -> Iterator[Violation]:
    """A file of a compliance test is missing."""
    for test, folder in _present(result):
        for place in result.round.compliance[test].packed:
            if not (folder / place).is_file():
                yield Violation(folder / place, "a file", "none")


@rule("test06-log", forbidden("compliance/TEST06/README.md:11-14"), hint="run the test again with consistent answers")
def test06_log(result: Result) -> Iterator[Violation]:
    """The log of TEST06 contradicts its verdict."""
    path = _evidence(result, "TEST06", ACCURACY)
    if path is None:
        return
    eos_ids = result.rules.eos_ids
    try:
        answers = _with_id_width(read_accuracy_log(path))
        verdict = test06.verify(answers, result.scenario, eos_ids, str(path))
    except ConfigError as error:
        yield Violation(path, error.expected or "answers", error.found or error.what, error.hint, _UNVERIFIED)
        return
    if verdict.failures:
        more = len(verdict.failures) - _MAX_FAILURES_SHOWN
        found = "; ".join(verdict.failures[:_MAX_FAILURES_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        yield Violation(
            path, "first token, end and length as reported", found, basis=_test06_basis(verdict, answers, eos_ids)
        )


def _with_id_width(answers: Sequence[Answer]) -> list[Answer]:
    """Read token ids as int32 or int64, whichever matches the reported token counts.

    run_verification.py of TEST06 has an option for the type (-d), whose value no file of a tree contains.
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
    """The official script accepts an end-of-sequence id inside an answer, so that is a warning only."""
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
def test07_score(result: Result) -> Iterator[Violation]:
    """The score of TEST07 contradicts its verdict."""
    for test, folder in _present(result):
        facts = result.round.compliance[test]
        path, least = folder / facts.verdict, facts.bounds.get("accuracy_threshold")
        if least is not None and path.is_file():
            scores = _SCORE.findall(path.read_text(errors="replace"))
            if not scores or float(scores[-1]) < least:
                basis = None if scores else _UNVERIFIED
                yield Violation(
                    path, f"Accuracy score: {least:g} or more", scores[-1] if scores else "none", basis=basis
                )


@rule(
    "test09-length",
    forbidden("compliance/TEST09/gpt-oss-120b/audit.config"),
    hint="do not shorten or lengthen answers",
)
def test09_length(result: Result) -> Iterator[Violation]:
    """The log of TEST09 contradicts its verdict."""
    path = _evidence(result, "TEST09", DETAIL)
    if path is not None:
        mean, bounds = _mean_length(parse_detail(path)), result.round.compliance["TEST09"].bounds
        least, most = bounds["min_output_tokens"], bounds["max_output_tokens"]
        if not least <= mean <= most:
            basis = _UNVERIFIED if math.isnan(mean) else None
            yield Violation(path, f"{least:g} to {most:g} tokens per answer", f"{mean:.2f}", basis=basis)


def _mean_length(log: DetailLog) -> float:
    """Tokens per answer; LoadGen omits one sample from the rate of a Server run (loadgen/results.cc:413-414)."""
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
