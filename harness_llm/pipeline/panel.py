"""Terminal output of a submission: plan, stages and the current run; plain lines without a terminal."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness_llm.config.rules import LatencyLimit

PLAIN_EVERY_S = 10.0


def clock(seconds: float) -> str:
    """A duration, for example `12:05` or `1:02:05`."""
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@dataclass(frozen=True)
class RunView:
    """A run before it starts.

    Attributes:
        total: samples that LoadGen will issue.
        predicted_s: predicted duration.
        limit: p99 limits, if the scenario has any.
    """

    name: str
    total: int
    predicted_s: float
    limit: LatencyLimit | None = None


@dataclass
class RunProgress:
    """Progress of the current run; times in seconds.

    Attributes:
        predicted_s: duration of the run; after the probe, its prediction.
    """

    view: RunView
    began: float = field(default_factory=time.monotonic)
    body: dict[str, Any] = field(default_factory=dict)
    text: str = "attaching"
    tokens_per_second: float = 0.0
    predicted_s: float = 0.0

    def __post_init__(self) -> None:
        self.predicted_s = self.view.predicted_s

    def take(self, body: Mapping[str, Any]) -> None:
        """Take a status message of LoadGen's process."""
        if body["event"] == "probed":
            self._take_prediction(body["prediction"], body.get("reason", ""))
        elif body["event"] == "started":
            self.began, self.text = time.monotonic(), "running"
        elif body["event"] == "progress":
            self.body = dict(body)
            self.tokens_per_second = body["tokens"] / max(self.elapsed, 1e-9)

    def _take_prediction(self, prediction: Mapping[str, float] | None, reason: str) -> None:
        if prediction is None:
            self.text = f"probe: no prediction: {reason}"
            return
        self.predicted_s = prediction["run_s"]
        self.text = (
            f"probe: {prediction['samples_per_second']:.4g} samples/s predicted "
            f"({prediction['low']:.4g} to {prediction['high']:.4g}), {prediction['tokens_per_second']:,.0f} tokens/s, "
            f"run of {clock(self.predicted_s)}; {prediction['load_s']:.1f} s of load, {prediction['drain_s']:.1f} s of "
            "drain"
        )

    @property
    def elapsed(self) -> float:
        """Since the measurement started."""
        return time.monotonic() - self.began

    @property
    def remaining(self) -> float:
        """From the rate so far; from the prediction before 5 % of the samples are complete."""
        done: int = self.body.get("done", 0)
        if done < self.view.total / 20:
            return self.predicted_s - self.elapsed
        return self.elapsed * (self.view.total - done) / done

    def facts(self) -> list[str]:
        """Metrics as text, most important first."""
        body, view = self.body, self.view
        facts = [
            f"{body.get('done', 0)}/{view.total} samples",
            f"{self.tokens_per_second:,.0f} tokens/s",
            f"{body.get('in_flight', 0)} in flight{_spread(body.get('loads', []))}",
        ]
        for name, limit in (
            ("ttft", view.limit and view.limit.ttft),
            ("tpot", view.limit and view.limit.tpot),
        ):
            if f"{name}_ms" in body:
                p50, p99 = body[f"{name}_ms"]
                bound = f" (limit {limit:g})" if limit else ""
                facts.append(f"{name.upper()} p50 {p50:.1f} p99 {p99:.1f} ms{bound}")
        return facts

    def line(self) -> str:
        """The progress in one line."""
        times = f"{clock(self.elapsed)} elapsed, {clock(self.remaining)} left"
        return f"{self.view.name}: {self.text}, {times}, {', '.join(self.facts())}"

    def __rich__(self) -> Group:
        head = Table.grid(padding=(0, 2))
        done = self.body.get("done", 0)
        head.add_row(
            Text(self.view.name, style="bold"),
            ProgressBar(total=self.view.total, completed=done, width=32),
            f"{clock(self.elapsed)} elapsed, {clock(self.remaining)} left",
            self.text,
        )
        return Group(head, *(Text(f"  {fact}") for fact in self.facts()))


def _spread(loads: Sequence[Sequence[int]]) -> str:
    """Minimum and maximum number of queries in flight per replica; empty for one replica."""
    running = [queries for queries, _ in loads]
    return f" ({min(running)} to {max(running)} with each of {len(running)})" if len(running) > 1 else ""


class Panel:
    """Writes to `console`: a live view on a terminal, a line every 10 s otherwise."""

    def __init__(self, console: Console) -> None:
        """Write to `console`, which detects a terminal and NO_COLOR."""
        self._console = console
        self._live: Live | None = None
        self._run: RunProgress | None = None
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

    def begin(self, view: RunView) -> None:
        """Start to show a run."""
        self._run = RunProgress(view)
        self._last_line = time.monotonic()
        self.say(f"{view.name}: {view.total} samples, about {clock(view.predicted_s)}")
        if self._console.is_terminal:
            self._live = Live(self._run, console=self._console, refresh_per_second=4, transient=True)
            self._live.start()

    def progress(self, body: Mapping[str, Any]) -> None:
        """Show a status message of LoadGen's process."""
        if not self._run:
            return
        self._run.take(body)
        if body["event"] == "probed":
            self.say(f"{self._run.view.name}: {self._run.text}")
        if not self._live and time.monotonic() - self._last_line >= PLAIN_EVERY_S:
            self._last_line = time.monotonic()
            self.say(self._run.line())

    def end(self, text: str = "") -> None:
        """End the live view of the run, and print `text`."""
        if self._live:
            self._live.stop()
        self._live = self._run = None
        if text:
            self.say(text)
