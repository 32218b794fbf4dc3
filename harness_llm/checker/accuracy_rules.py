"""Rules on accuracy.txt, the truncated accuracy log and the number of samples of the accuracy run."""

import re
from collections.abc import Iterator
from pathlib import Path

from harness_llm.checker.findings import Rule, Violation, advised, forbidden, rejected, rule
from harness_llm.checker.submission_tree import Log, Result
from harness_llm.errors import ConfigError
from harness_llm.evaluate.accuracy_file import ACCURACY as SCORES
from harness_llm.evaluate.accuracy_file import parse
from harness_llm.evaluate.gates import Gates, judge
from harness_llm.loadgen.logs import ACCURACY

_HASH = re.compile(r"^hash=\w+$", re.MULTILINE)


def _path(result: Result) -> Path:
    return result.path / "accuracy" / SCORES


def _text(result: Result) -> str | None:
    return _path(result).read_text(errors="replace") if _path(result).is_file() else None


_SCORED = "accuracy_check.py, accuracy_result_check"
_REPORTED = forbidden("inference_policies/inference_rules.adoc:361")
"""In open, accuracy is reported without gates, and the official checker does not read it."""


@rule("accuracy-file", rejected(_SCORED))
def accuracy_file(result: Result) -> Iterator[Violation]:
    """accuracy.txt is missing."""
    if _text(result) is None:
        yield Violation(_path(result), "a file", "none")


@rule("accuracy-hash", rejected(_SCORED), hint="truncate the complete log of the run again")
def accuracy_hash(result: Result) -> Iterator[Violation]:
    """accuracy.txt does not contain the hash of the complete accuracy log."""
    text = _text(result)
    if text is not None and not _HASH.search(text):
        basis = None if result.submitter.enforced else advised(_SCORED)
        yield Violation(_path(result), "a line hash=<sha256>", "none", basis=basis)


@rule(
    "accuracy-log",
    rejected("accuracy_check.py, accuracy_json_check"),
    hint="truncate it, and keep the complete log outside the tree",
)
def accuracy_log(result: Result) -> Iterator[Violation]:
    """The accuracy log is missing or not truncated."""
    path, most = result.path / "accuracy" / ACCURACY, result.round.max_accuracy_log_bytes
    if not path.is_file():
        yield Violation(path, "a file", "none")
    elif path.stat().st_size > most:
        yield Violation(path, f"at most {most} bytes", f"{path.stat().st_size} bytes")


@rule("accuracy-metric", rejected(f"{_SCORED}; constants.py, ACC_PATTERN"))
def accuracy_metric(result: Result) -> Iterator[Violation]:
    """A metric is missing, or the official checker cannot read it."""
    text = _text(result)
    errors = (_unreadable(text, metric) for metric in result.rules.gates if text is not None)
    for what, expected, found, hint in dict.fromkeys(error for error in errors if error):
        basis = None if result.submitter.enforced else _REPORTED
        yield Violation(_path(result), expected, f"{what}: {found or 'no value'}", hint, basis)


def _unreadable(text: str, metric: str) -> tuple[str, str, str, str] | None:
    try:
        parse(text, [metric])
    except ConfigError as error:
        return error.what, error.expected, error.found, error.hint
    return None


def _scores(line: str) -> dict[str, float]:
    try:
        return parse(line)
    except ConfigError:
        return {}


@rule("accuracy-gate", rejected(f"{_SCORED}; constants.py, accuracy-target and accuracy-upper-limit"))
def accuracy_gate(result: Result) -> Iterator[Violation]:
    """A score misses its accuracy gate."""
    gates = Gates(result.rules.gates, result.rules.limits)
    # The official checker requires every line with the metric to pass.
    lines = (_text(result) or "").splitlines() if result.submitter.enforced else []
    for verdict in (verdict for line in lines for verdict in judge(_scores(line), gates)):
        if verdict.found is not None and not verdict.passed:
            side = "at least" if verdict.side == "lower" else "at most"
            expected = f"{verdict.metric} {side} {verdict.bound:.10g}"
            yield Violation(_path(result), expected, f"{verdict.found:.10g}")


@rule("accuracy-samples", rejected("accuracy_check.py, dataset_check"), hint="run the whole data set", scale=True)
def accuracy_samples(log: Log) -> Iterator[Violation]:
    """The accuracy run did not cover the data set."""
    rules, found = log.result.rules, log.detail.accuracy_sample_count
    expected = rules.samples if rules.accuracy_samples is None else rules.accuracy_samples
    if found != expected:
        yield Violation(log.path, f"{expected} samples", str(found))


RESULT: tuple[Rule[Result], ...] = (accuracy_file, accuracy_hash, accuracy_log, accuracy_metric, accuracy_gate)
LOG: tuple[Rule[Log], ...] = (accuracy_samples,)
