"""Terminal output of a submission: plan, stages, starts and the current run; plain lines without a terminal."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from harness_llm.pipeline.live.run_progress import RunProgress, RunView, clock
from harness_llm.pipeline.live.run_text import run_line, run_lines
from harness_llm.pipeline.live.start_text import ready_line, start_line, start_lines
from harness_llm.pipeline.live.state import LiveState
from harness_llm.replicas.start_progress import StartStatus

PLAIN_EVERY_S = 10.0
_PLAIN_LINES = 100  # of a long run
_REDRAWS_PER_S = 2

Draw = Callable[[int, int, bool], list[Text]]
"""Returns the lines of a view for a width, a height, and whether the terminal has no Unicode."""


class _View:
    """A live view that is drawn again for the size of the terminal."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # The last line of a terminal stays free, so that it does not scroll.
        yield from self._draw(options.max_width, max(console.size.height - 1, 1), options.ascii_only)


class Panel:
    """Writes to `console`: a live view on a terminal, otherwise lines at intervals.

    Attributes:
        state: what is shown; the metrics read it too.
        verbose: whether the results of runs have all metrics.
    """

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        """Write to `console`, which detects a terminal and NO_COLOR."""
        self.verbose = verbose
        self.state = LiveState()
        self._console = console
        self._live: Live | None = None
        self._starting = False
        self._last_line = 0.0
        self._stage = ""

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def stage(self, text: str, done: float | None = None) -> None:
        """Print the progress `done` of a stage, from 0 to 1; a line only if the name or the tenth changes."""
        mark = f"{text.split(':', maxsplit=1)[0]} {int((done or 0) * 10)}"
        if mark != self._stage:
            self._stage = mark
            self.say(f"{text}" + (f" ({done:.0%})" if done is not None else ""))

    def starting(self, status: StartStatus) -> None:
        """Show the phases of a starting replica pool; the last call is that of a ready one."""
        self.state.start = status
        if not self._starting:
            self._starting = True
            self._begin_view(lambda width, height, _: start_lines(self.state.start or status, width, height))
        if status.ready == len(status.phases):
            self.end(ready_line(status))
        elif not self._live:
            self._line_at_times(start_line(status), PLAIN_EVERY_S)

    def begin(self, view: RunView) -> None:
        """Start to show a run."""
        self.end()
        run = self.state.run = RunProgress(view)
        self.say(f"{view.name}: {view.total} samples, about {clock(view.predicted_s)}")
        self._begin_view(lambda width, height, ascii_only: run_lines(run, width, height, ascii_only=ascii_only))

    def _begin_view(self, draw: Draw) -> None:
        self._last_line = time.monotonic()
        if self._console.is_terminal:
            self._live = Live(_View(draw), console=self._console, refresh_per_second=_REDRAWS_PER_S, transient=True)
            self._live.start()

    def progress(self, body: Mapping[str, Any]) -> None:
        """Show a status message of LoadGen's process."""
        run = self.state.run
        if not run:
            return
        run.take(body)
        if body["event"] in {"probed", "replica"}:
            self.say(f"{run.view.name}: {body.get('text', run.text)}")
        if not self._live:
            self._line_at_times(run_line(run), max(PLAIN_EVERY_S, run.predicted_s / _PLAIN_LINES))

    def _line_at_times(self, text: str, seconds: float) -> None:
        if time.monotonic() - self._last_line >= seconds:
            self._last_line = time.monotonic()
            self.say(text)

    def end(self, text: str = "") -> None:
        """End the live view, and print `text`."""
        if self._live:
            self._live.stop()
        self._live = self.state.run = None
        self._starting = False
        if text:
            self.say(text)
