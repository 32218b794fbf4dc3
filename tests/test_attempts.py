"""Which failed runs are repeated, and the table of missing runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness_llm.errors import (
    ConfigError,
    EnvironmentMissing,
    GateFailed,
    HarnessError,
    ProcessFailed,
    RunFailed,
    rebuild,
)
from harness_llm.pipeline.attempts import (
    MAX_REPEATS,
    Attempt,
    RunAttempts,
    may_repeat,
    missing_runs_error,
    with_obstacles,
)
from harness_llm.runs.record import Run, RunKey, State
from harness_llm.runs.selection import NOT_COUNTED, RunStatus, Selection, Todo

KILLED = ProcessFailed("replica-0 failed", where="logs/replica-0.log", found="exit by signal 9 (SIGKILL)")


def a_run(state: State, reason: str = "") -> Run:
    return Run(Path("logs/Server/performance"), RunKey("demo", "Server", "performance"), "box", None, state, reason)


@pytest.mark.parametrize(
    ("attempt", "repeated"),
    [
        (Attempt(a_run(State.FAILED), KILLED), True),
        (Attempt(None, KILLED), True),
        (Attempt(a_run(State.DEGRADED)), True),
        (Attempt(a_run(State.FAILED), RunFailed("a replica refused a query")), False),
        (Attempt(None, ConfigError("too few devices")), False),
        (Attempt(None, EnvironmentMissing("missing program")), False),
        (Attempt(a_run(State.FAILED), GateFailed("no score")), False),
        (Attempt(a_run(State.INVALID, "target above the throughput")), False),
        (Attempt(a_run(State.PROFILED)), False),
        (Attempt(a_run(State.VALID)), False),
    ],
)
def test_failures_of_processes_are_repeated(attempt: Attempt, repeated: bool) -> None:
    assert may_repeat([attempt]) is repeated


def test_run_is_repeated_twice_at_most() -> None:
    failed = Attempt(None, KILLED)
    assert [may_repeat([failed] * count) for count in range(1, 5)] == [True] * MAX_REPEATS + [False] * 2
    assert not may_repeat([failed, Attempt(a_run(State.VALID))])


def test_error_of_another_process_keeps_its_class() -> None:
    class Special(RunFailed):
        pass

    for error, kind in ((KILLED, ProcessFailed), (Special("x"), RunFailed), (ConfigError("x", hint="y"), ConfigError)):
        again: HarnessError = rebuild(error.facts())
        assert type(again) is kind
        assert str(again) == str(error)


def test_error_in_one_line_names_the_cause_before_the_place() -> None:
    assert KILLED.line == "replica-0 failed: exit by signal 9 (SIGKILL); logs/replica-0.log"
    assert ConfigError("a\nb", "c", "d", "e", "f").line == "a b: e; expected d; c; hint: f"


def test_table_of_missing_runs() -> None:
    runs = [
        RunAttempts(RunKey("demo", "Offline", "TEST06"), (Attempt(a_run(State.FAILED), KILLED),) * 3),
        RunAttempts(RunKey("demo", "Server", "performance"), (Attempt(a_run(State.INVALID, "too slow; short")),)),
        RunAttempts(RunKey("demo", "Server", "accuracy"), blocked=KILLED),
    ]
    error = missing_runs_error(runs, 6, "harness-llm submit")
    assert error.exit_code == 4
    assert error.found.splitlines() == [
        "3 of 6 runs are missing",
        "",
        "    run                      state    attempts  cause",
        "    demo/Offline/TEST06      FAILED   3         replica-0 failed: exit by signal 9 (SIGKILL)",
        "                                                logs/replica-0.log",
        "    demo/Server/performance  INVALID  1         too slow; short",
        "                                                logs/Server/performance",
        "    demo/Server/accuracy     MISSING  0         not attempted: replica-0 failed: exit by signal 9 (SIGKILL)",
        "                                                logs/replica-0.log",
    ]
    assert error.hint == "after removing the causes: harness-llm submit"


def test_valid_run_that_the_division_does_not_allow_is_missing() -> None:
    run = RunAttempts(RunKey("demo", "Server", "performance"), (Attempt(a_run(State.VALID)),))
    accuracy = replace(run, run_key=RunKey("demo", "Server", "accuracy"))
    left_out = RunStatus(run.run_key, run.run, NOT_COUNTED, "VALID but not allowed in closed: cache hits", Todo.MEASURE)
    selection = Selection((left_out, RunStatus(accuracy.run_key, run.run, State.VALID, "", Todo.NOTHING)))
    missing, counted = with_obstacles([run, accuracy], selection)
    assert (missing.valid, missing.exit_code) == (False, 1)
    assert counted == accuracy
    assert counted.valid
    (row,) = [line for line in missing_runs_error([missing], 2, "").found.splitlines() if "Server/performance " in line]
    assert row.split(maxsplit=1)[1] == "NOT COUNTED  1         VALID but not allowed in closed: cache hits"


def test_failed_run_keeps_its_cause() -> None:
    failed = RunAttempts(RunKey("demo", "Server", "performance"), (Attempt(a_run(State.FAILED), KILLED),))
    selection = Selection((RunStatus(failed.run_key, None, "MISSING", "no run", Todo.MEASURE),))
    assert with_obstacles([failed], selection) == [failed]


@pytest.mark.parametrize(
    ("attempt", "code"),
    [
        (Attempt(a_run(State.VALID)), 0),
        (Attempt(a_run(State.INVALID)), 1),
        (Attempt(None, ConfigError("x")), 2),
        (Attempt(None, EnvironmentMissing("x")), 3),
        (Attempt(a_run(State.FAILED), KILLED), 4),
        (Attempt(a_run(State.DEGRADED)), 4),
    ],
)
def test_exit_code_is_that_of_the_worst_failure(attempt: Attempt, code: int) -> None:
    run = RunAttempts(RunKey("demo", "Server", "performance"), (attempt,))
    assert run.exit_code == code
    invalid = RunAttempts(run.run_key, (Attempt(a_run(State.INVALID)),))
    assert missing_runs_error([run, invalid], 2, "again").exit_code == max(code, 1)
