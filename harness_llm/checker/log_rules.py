"""Rules on both LoadGen logs of a result: readable, of the right mode and scenario, without errors."""

from collections.abc import Iterator

from harness_llm.checker.findings import Rule, Violation, advised, forbidden, rejected, rule
from harness_llm.checker.submission_tree import Log

_UNCOMMITTED = "Loadgen built with uncommitted changes!"
_UNALTERED = forbidden("inference_policies/inference_rules.adoc:462-464")
_IDENTICAL = forbidden("inference_policies/inference_rules.adoc:470-475")


@rule("log", rejected("loader.py:469-473"), hint="copy the log from the run's directory")
def log_file(log: Log) -> Iterator[Violation]:
    """A LoadGen log is missing or cannot be read."""
    if not log.path.is_file():
        yield Violation(log.path, "a LoadGen log", "none")
    elif not log.readable:
        _ = log.detail  # raises ConfigError with the reason


@rule("log-mode", _IDENTICAL, hint="performance and accuracy logs may be interchanged")
def log_mode(log: Log) -> Iterator[Violation]:
    """The mode of a log does not match its folder."""
    if log.detail.mode != log.mode:
        yield Violation(log.path, log.mode, log.detail.mode)


@rule("log-scenario", _IDENTICAL)
def log_scenario(log: Log) -> Iterator[Violation]:
    """The scenario of a log does not match its folder."""
    folder, found = log.result.scenario, log.detail.scenario
    expected = log.result.round.scenarios.get(folder)
    edge = "edge" in str(log.result.system.field("system_type"))
    if expected and found != expected and not (edge and found in log.result.round.inferred.get(folder, ())):
        performance = log == log.result.performance
        basis = rejected("performance_check.py, inferred_check") if performance else None
        yield Violation(log.path, expected, found, basis=basis)


@rule(
    "loadgen-errors",
    rejected("performance_check.py and accuracy_check.py, loadgen_errors_check"),
    hint="correct the cause and run again; the official checker reads performance logs with --submission-exceptions",
)
def loadgen_errors(log: Log) -> Iterator[Violation]:
    """LoadGen logged errors."""
    if log.detail.errors:
        uncommitted = all(_UNCOMMITTED in error for error in log.detail.errors)
        accepted = uncommitted and log == log.result.performance
        yield Violation(log.path, "no error", "; ".join(log.detail.errors), basis=_UNALTERED if accepted else None)


@rule(
    "loadgen-version",
    advised("loadgen/VERSION.txt and loadgen/mlperf.conf, in their history"),
    hint="seeds are compiled into LoadGen; the official checker compares only the seeds",
)
def loadgen_version(log: Log) -> Iterator[Violation]:
    """The LoadGen version is not one with the seeds of the round."""
    known = log.result.round.loadgen.versions
    if log.detail.loadgen_version not in known and not log.result.of_another_round:
        yield Violation(log.path, " or ".join(known), log.detail.loadgen_version)


FILE: tuple[Rule[Log], ...] = (log_file,)
READABLE: tuple[Rule[Log], ...] = (log_mode, log_scenario, loadgen_errors, loadgen_version)
