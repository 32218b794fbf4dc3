"""Rules on the two LoadGen logs of a result alike: present, whole, of the right test, and clean."""

from collections.abc import Iterator

from harness_llm.checker.findings import Fault, Rule, advised, forbidden, rejected, rule
from harness_llm.checker.submission_tree import Log

_UNCOMMITTED = "Loadgen built with uncommitted changes!"
_UNALTERED = forbidden("inference_policies/inference_rules.adoc:462-464")
_IDENTICAL = forbidden("inference_policies/inference_rules.adoc:470-475")


@rule("log", rejected("loader.py:469-473"), hint="take the log from the run's directory")
def log_file(log: Log) -> Iterator[Fault]:
    """A LoadGen log is missing or cannot be read."""
    if not log.path.is_file():
        yield Fault(log.path, "a LoadGen log", "none")
    elif not log.readable:
        yield from _unreadable(log)


def _unreadable(log: Log) -> Iterator[Fault]:
    _ = log.detail  # raises, and says why
    yield from ()


@rule("log-mode", _IDENTICAL, hint="the two logs may be exchanged")
def log_mode(log: Log) -> Iterator[Fault]:
    """A log is of another test than its folder."""
    if log.detail.mode != log.mode:
        yield Fault(log.path, log.mode, log.detail.mode)


@rule("log-scenario", _IDENTICAL)
def log_scenario(log: Log) -> Iterator[Fault]:
    """A log is of another scenario than its folder."""
    folder, found = log.result.scenario, log.detail.scenario
    expected = log.result.round.scenarios.get(folder)
    edge = "edge" in str(log.result.system.field("system_type"))
    if expected and found != expected and not (edge and found in log.result.round.inferred.get(folder, ())):
        judged = log == log.result.performance
        yield Fault(
            log.path, expected, found, basis=rejected("performance_check.py, inferred_check") if judged else None
        )


@rule(
    "loadgen-errors",
    rejected("performance_check.py and accuracy_check.py, loadgen_errors_check"),
    hint="mend the cause and run again; in a performance log the official checker needs --submission-exceptions for it",
)
def loadgen_errors(log: Log) -> Iterator[Fault]:
    """LoadGen logged errors."""
    if log.detail.errors:
        uncommitted = all(_UNCOMMITTED in error for error in log.detail.errors)
        accepted = uncommitted and log == log.result.performance
        yield Fault(log.path, "no error", "; ".join(log.detail.errors), basis=_UNALTERED if accepted else None)


@rule(
    "loadgen-version",
    advised("loadgen/VERSION.txt and loadgen/mlperf.conf, in their history"),
    hint="the seeds are compiled into LoadGen; the official checker compares the seeds alone",
)
def loadgen_version(log: Log) -> Iterator[Fault]:
    """The LoadGen is none of the versions with the round's seeds."""
    known = log.result.round.loadgen.versions
    if log.detail.loadgen_version not in known:
        yield Fault(log.path, " or ".join(known), log.detail.loadgen_version)


FILE: tuple[Rule[Log], ...] = (log_file,)
READABLE: tuple[Rule[Log], ...] = (log_mode, log_scenario, loadgen_errors, loadgen_version)
