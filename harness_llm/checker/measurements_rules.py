"""Rules on measurements.json and the files beside it."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from harness_llm.checker.findings import Rule, Violation, advised, forbidden, rejected, rule
from harness_llm.checker.submission_tree import Result, json_or_none, load_json
from harness_llm.config.user_conf import UserConf, parse
from harness_llm.errors import ConfigError


@rule("measurements-file", rejected("measurements_checks.py, missing_check"))
def measurements_file(result: Result) -> Iterable[Violation]:
    """The measurements file of a result is missing or unreadable."""
    load_json(result.measurements)
    return ()


@rule("measurements-field", rejected("measurements_checks.py, required_fields_check"))
def measurements_field(result: Result) -> Iterator[Violation]:
    """Fields of the measurements are missing or empty."""
    fields = json_or_none(result.measurements)
    if fields is not None:
        empty = [name for name in result.round.measurements_fields if not fields.get(name)]
        if empty:
            values = dict.fromkeys(repr(fields.get(name)) for name in empty)
            yield Violation(result.measurements, f"a value for {', '.join(empty)}", ", ".join(values))


@rule("measurements-beside", rejected("measurements_checks.py, required_files_check"))
def measurements_beside(result: Result) -> Iterator[Violation]:
    """A file beside the measurements is missing or empty."""
    for name in result.round.measurements_files:
        path = result.measurements.parent / name
        if not path.is_file():
            yield Violation(path, "a file", "none")
        elif path.stat().st_size == 0:
            yield Violation(path, "text", "an empty file")


@rule("user-conf", advised("loadgen/test_settings_internal.cc:508-814"))
def user_conf(result: Result) -> Iterable[Violation]:
    """LoadGen ignores a line of user.conf."""
    _settings(result)
    return ()


@rule("user-conf-closed", forbidden("loadgen/test_settings_internal.cc:735-760"), hint="delete the line and run again")
def user_conf_closed(result: Result) -> Iterator[Violation]:
    """A setting of user.conf is allowed only in the open division."""
    try:
        settings = _settings(result) if result.submitter.enforced else UserConf({})
    except ConfigError:
        return
    for name in settings.open_only():
        yield Violation(_path(result), "the default of LoadGen", name)


def _path(result: Result) -> Path:
    return result.measurements.with_name("user.conf")


def _settings(result: Result) -> UserConf:
    path = _path(result)
    models = {
        rules.loadgen_model(scenario)
        for rules in result.round.benchmarks.values()
        for kind in rules.scenarios.values()
        for scenario in (*kind.required, *kind.optional)
    }
    return parse(path.read_text(errors="replace") if path.is_file() else "", str(path), models)


RESULT: tuple[Rule[Result], ...] = (
    measurements_file,
    measurements_field,
    measurements_beside,
    user_conf,
    user_conf_closed,
)
