"""The runs of one scenario: on one replica pool, and on a new one after a failure."""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness_llm.analysis.diagnosis.explanation import explain
from harness_llm.config.commands import repeat
from harness_llm.config.request import Request
from harness_llm.errors import HarnessError, RunFailed
from harness_llm.pipeline.attempts import MAX_REPEATS, Attempt, RunAttempts, may_repeat
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.result_text import result_lines
from harness_llm.pipeline.run import ScenarioContext
from harness_llm.runs.record import Run, RunKey, State, load_run


@dataclass
class ScenarioRuns:
    """Makes the runs of one scenario, and repeats failed ones.

    Attributes:
        request: of the next attempt; each attempt at a run has its own folder.
        scenario: name.
        start: starts a replica pool with its logs below the request's folder.
        execute: makes one run of a test.
        judge: judges the complete log of a run again.
        panel: prints lines, and counts runs by state.
    """

    request: Request
    scenario: str
    start: Callable[[Request], ScenarioContext]
    execute: Callable[[ScenarioContext, str], Run]
    judge: Callable[[Run], Run]
    panel: Panel
    _context: ScenarioContext | None = None
    _no_start: HarnessError | None = None

    def run(self, tests: Sequence[str], measured: Sequence[Run] = ()) -> list[RunAttempts]:
        """Judge the runs `measured` again, then make the runs of `tests`; return the attempts at each.

        Raises:
            HarnessError: the first failure, with --stop-on-failure.
        """
        try:
            return [*map(self._judge, measured), *map(self._run, tests)]
        finally:
            self._stop()

    def _judge(self, run: Run) -> RunAttempts:
        self.panel.say(f"{self.scenario} {run.run_key.test} is judged again: {run.path}")
        return RunAttempts(run.run_key, (self._attempt(run.run_key, run.path, lambda: self.judge(run)),))

    def _run(self, test: str) -> RunAttempts:
        run_key = RunKey(self.request.benchmark.name, self.scenario, test)
        if self._no_start:
            return RunAttempts(run_key, blocked=self._no_start)
        attempts = [self._execute(run_key)]
        while may_repeat(attempts):
            self._check_stop(attempts[-1])
            self.panel.say(f"  {self.scenario} {test} is repeated: attempt {len(attempts) + 1} of {1 + MAX_REPEATS}")
            self.request = later(self.request)
            attempts.append(self._execute(run_key))
        return RunAttempts(run_key, tuple(attempts))

    def _check_stop(self, failed: Attempt) -> None:
        """Raise the failure of a run that is otherwise repeated, with --stop-on-failure."""
        if failed.run and self.request.options.stop_on_failure:
            raise RunFailed(
                f"{failed.run.run_key} is {failed.run.state}",
                where=str(failed.run.path),
                found="; ".join(failed.run.reasons),
                hint="without --stop-on-failure the run is repeated",
            )

    def _execute(self, run_key: RunKey) -> Attempt:
        path = self.request.log_folder / self.scenario / run_key.test
        return self._attempt(run_key, path, lambda: self.execute(self._start(), run_key.test))

    def _attempt(self, run_key: RunKey, path: Path, make: Callable[[], Run]) -> Attempt:
        try:
            attempt = Attempt(make())
        except HarnessError as error:
            attempt = Attempt(load_run(path) if path.is_dir() else None, error)
            if not self.request.options.stop_on_failure:
                self.panel.say(f"{self.scenario} {run_key.test} failed: {error}")
        if attempt.run:
            self.panel.state.count(attempt.run.state)
        if attempt.run and attempt.run.state is State.MEASURED:
            again = repeat(self.request.options, self.scenario, verb="run", tests=run_key.test)
            self.panel.say(f"  its log is complete: the next submit judges it again; to measure again: {again}")
        elif attempt.error:
            self._stop()
        if attempt.error and self.request.options.stop_on_failure:
            raise attempt.error
        return self._explained(attempt)

    def _explained(self, attempt: Attempt) -> Attempt:
        """Print the result of an attempt at a run with its causes; of a failed one, the error is printed."""
        run, request = attempt.run, self.request
        if run is None:
            return attempt
        found = explain(run)
        if attempt.error and found.lines:
            self.panel.say(found.lines)
        if not attempt.error:
            limit, scores = request.rules.latency_ms.get(self.scenario), request.benchmark.accuracy.metrics
            for line in result_lines(run, limit, scores, found.lines, verbose=self.panel.verbose):
                self.panel.say(line)
        return replace(attempt, cause=found.cause)

    def _start(self) -> ScenarioContext:
        """Return the context of the next attempt; its replica pool is started if there is none."""
        self._no_start = None
        try:
            self._context = replace(self._context, request=self.request) if self._context else self.start(self.request)
        except HarnessError as error:
            self._no_start = error
            raise
        return self._context

    def _stop(self) -> None:
        """Stop the replica pool: the next attempt starts new engines."""
        if self._context:
            self._context.pool.stop()
        self._context = None


def later(request: Request) -> Request:
    """Return `request` as if it started now; folders are named by the second."""
    now = dt.datetime.now(dt.UTC)
    return replace(request, started=max(now, request.started + dt.timedelta(seconds=1)))
