"""Rules on the compliance tests of a result."""

import math
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from harness_llm.check.findings import Fault, Rule, Severity, rule
from harness_llm.check.tree import Result
from harness_llm.compliance import test06
from harness_llm.loadgen.logs import ACCURACY, DETAIL, Answer, DetailLog, parse_detail, read_accuracy_log

_SHOWN = 3
_SCORE = re.compile(r"^Accuracy score: (\d+(?:\.\d+)?)$", re.MULTILINE)


def _present(result: Result) -> list[tuple[str, Path]]:
    """The tests that the benchmark asks for and that are there, and their folders."""
    tests = ((test, result.compliance(test)) for test in result.rules.compliance)
    return [(test, folder) for test, folder in tests if folder.is_dir()]


def _evidence(result: Result, wanted: str, name: str) -> Path | None:
    """The file `name` of the run of one test, where the tree holds it."""
    packed = result.round.compliance[wanted].packed if wanted in result.round.compliance else {}
    places = (folder / place for test, folder in _present(result) if test == wanted for place in packed)
    return next((place for place in places if place.name == name and place.is_file()), None)


@rule("compliance", "compliance_check.py, dir_exists_check; constants.py:311-328")
def compliance(result: Result) -> Iterator[Fault]:
    """A compliance test is missing."""
    present = {test for test, _ in _present(result)}
    for test in result.rules.compliance:
        if result.submitter.enforced and test not in present:
            yield Fault(result.compliance(test), f"{test} of each scenario", "no such folder")


@rule("compliance-verdict", "compliance_check.py, accuracy_check", hint="mend what it names and run the test again")
def compliance_verdict(result: Result) -> Iterator[Fault]:
    """A compliance test did not pass."""
    for test, folder in _present(result):
        facts = result.round.compliance[test]
        path = folder / facts.verdict
        lines = {line.strip() for line in path.read_text(errors="replace").splitlines()} if path.is_file() else set()
        for group in facts.passes:
            if lines.isdisjoint(group):
                subject = group[0].rpartition(" ")[0]
                found = next((line for line in sorted(lines) if line.startswith(subject)), "no such line")
                yield Fault(path, " or ".join(group), found)


@rule("compliance-file", "compliance/TEST06, TEST07 and TEST09/run_verification.py", hint="take it from the test's run")
def compliance_file(result: Result) -> Iterator[Fault]:
    """A file of a compliance test is missing."""
    for test, folder in _present(result):
        for place in result.round.compliance[test].packed:
            if not (folder / place).is_file():
                yield Fault(folder / place, "a file", "none")


@rule("test06-log", "compliance/TEST06/run_verification.py", hint="the answers must be what LoadGen was told")
def test06_log(result: Result) -> Iterator[Fault]:
    """The answers of TEST06 do not bear its verdict out."""
    path = _evidence(result, "TEST06", ACCURACY)
    if path is None:
        return
    answers, eos_ids = read_accuracy_log(path), result.rules.eos_ids
    verdict = test06.verify(answers, result.scenario, eos_ids, str(path))
    asked = result.round.compliance["TEST06"].audit["accuracy_log_sampling_target"]
    if len(answers) != asked:
        yield Fault(path, f"{asked} answers", str(len(answers)))
    if verdict.failures:
        broken = verdict.first_token is False or not verdict.length or any(_ends_twice(a, eos_ids) for a in answers)
        more = len(verdict.failures) - _SHOWN
        found = "; ".join(verdict.failures[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        severity = Severity.ERROR if broken else Severity.WARNING
        yield Fault(path, "first token, end and length as claimed", found, severity=severity)


def _ends_twice(answer: Answer, eos_ids: Collection[int]) -> bool:
    """What the rules forbid; an end-of-sequence id inside of an answer is odd, and passes the official script."""
    last = answer.ids[-2:].tolist()
    return len(last) > 1 and set(last) <= set(eos_ids)


@rule("test07-score", "compliance/TEST07/run_verification.py", hint="score the answers of the test's run again")
def test07_score(result: Result) -> Iterator[Fault]:
    """The score of TEST07 does not bear its verdict out."""
    for test, folder in _present(result):
        facts = result.round.compliance[test]
        path, least = folder / facts.verdict, facts.bounds.get("accuracy_threshold")
        if least is not None and path.is_file():
            scores = _SCORE.findall(path.read_text(errors="replace"))
            if not scores or float(scores[-1]) < least:
                yield Fault(path, f"Accuracy score: {least:g} or more", scores[-1] if scores else "none")


@rule("test09-length", "compliance/TEST09/run_verification.py", hint="answers may not be cut, nor drawn out")
def test09_length(result: Result) -> Iterator[Fault]:
    """The log of TEST09 does not bear its verdict out."""
    path = _evidence(result, "TEST09", DETAIL)
    if path is not None:
        mean, bounds = _mean_length(parse_detail(path)), result.round.compliance["TEST09"].bounds
        least, most = bounds["min_output_tokens"], bounds["max_output_tokens"]
        if not least <= mean <= most:
            yield Fault(path, f"{least:g} to {most:g} tokens per answer", f"{mean:.2f}")


def _mean_length(log: DetailLog) -> float:
    """Tokens per answer; LoadGen leaves one sample out of the rate of a Server run (loadgen/results.cc:413-414)."""
    left_out = {"Offline": 0, "Server": 1}.get(log.scenario)
    if left_out is None or not (log.tokens_per_second and log.query_count and log.samples_per_second):
        return math.nan
    return log.tokens_per_second / log.samples_per_second * (1 - left_out / log.query_count)


JUDGED: tuple[Rule[Result], ...] = (
    compliance,
    compliance_verdict,
    compliance_file,
    test06_log,
    test07_score,
    test09_length,
)
