"""The runs of one scenario: on one replica pool, and on a new one after a failure."""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness_llm.analysis.diagnosis.explanation import explain
from harness_llm.config.request import Request
from harness_llm.errors import HarnessError, RunFailed
from harness_llm.pipeline.attempts import MAX_REPEATS, Attempt, RunAttempts, may_repeat
from harness_llm.pipeline.run import ScenarioContext
from harness_llm.runs.record import Run, RunKey, load_run


@dataclass
class ScenarioRuns:
    """Makes the runs of one scenario, and repeats failed ones.

    Attributes:
        request: of the next attempt; each attempt at a run has its own folder.
        scenario: name.
        start: starts a replica pool with its logs below the request's folder.
        execute: makes one run of a test.
        say: prints a line.
    """

    request: Request
    scenario: str
    start: Callable[[Request], ScenarioContext]
    execute: Callable[[ScenarioContext, str], Run]
    say: Callable[[str], None]
    _context: ScenarioContext | None = None
    _no_start: HarnessError | None = None

    def run(self, tests: Sequence[str]) -> list[RunAttempts]:
        """Make the runs of `tests`; return the attempts at each.

        Raises:
            HarnessError: the first failure, with --stop-on-failure.
        """
        try:
            return [self._run(test) for test in tests]
        finally:
            self._stop()

    def _run(self, test: str) -> RunAttempts:
        run_key = RunKey(self.request.benchmark.name, self.scenario, test)
        if self._no_start:
            return RunAttempts(run_key, blocked=self._no_start)
        attempts = [self._attempt(test)]
        while may_repeat(attempts):
            self._check_stop(attempts[-1])
            self.say(f"  {self.scenario} {test} is repeated: attempt {len(attempts) + 1} of {1 + MAX_REPEATS}")
            self.request = later(self.request)
            attempts.append(self._attempt(test))
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

    def _attempt(self, test: str) -> Attempt:
        try:
            self._context = self._start()
            run = self.execute(self._context, test)
        except HarnessError as error:
            if self.request.options.stop_on_failure:
                raise
            self.say(f"{self.scenario} {test} failed: {error}")
            self._stop()
            path = self.request.log_folder / self.scenario / test
            attempt = Attempt(load_run(path) if path.is_dir() else None, error)
        else:
            attempt = Attempt(run)
        if attempt.run and (causes := explain(attempt.run)):
            self.say(causes)
        return attempt

    def _start(self) -> ScenarioContext:
        """Return the context of the next attempt; its replica pool is started if there is none."""
        if self._context:
            return replace(self._context, request=self.request)
        self._no_start = None
        try:
            return self.start(self.request)
        except HarnessError as error:
            self._no_start = error
            raise

    def _stop(self) -> None:
        """Stop the replica pool: the next attempt starts new engines."""
        if self._context:
            self._context.pool.stop()
        self._context = None


def later(request: Request) -> Request:
    """Return `request` as if it started now; folders are named by the second."""
    now = dt.datetime.now(dt.UTC)
    return replace(request, started=max(now, request.started + dt.timedelta(seconds=1)))
