"""Output on a terminal, without one, and with NO_COLOR."""

import io
from types import SimpleNamespace

import pytest
from live_messages import GPUS, PROBED, VIEW, latency, progress, replica
from rich.console import Console

from harness_llm.pipeline import panel
from harness_llm.pipeline.live import run_progress
from harness_llm.pipeline.live.start_text import start_lines
from harness_llm.pipeline.panel import Panel
from harness_llm.replicas.start_phase import READY, Phase
from harness_llm.replicas.start_progress import StartStatus


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time, to be set."""
    time = SimpleNamespace(s=50.0)
    for module in (panel, run_progress):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.s))
    return time


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def show_run(console: Console, now: SimpleNamespace) -> str:
    """A whole run, 30 s long, with a status message each second."""
    shown = Panel(console)
    shown.begin(VIEW)
    shown.progress(PROBED)
    shown.progress({"event": "started"})
    for second in range(30):
        now.s += 1
        shown.progress(progress(done=second * 33, tokens=second * 660, replicas=[replica("a", 3, second, second * 9)]))
    shown.progress({"event": "replica", "text": "replica-1 failed: exit by signal 9"})
    shown.end("Server performance: VALID")
    shown.progress(progress(done=1))
    return written(console)


def test_plain_output_of_a_run_is_a_line_per_interval(now: SimpleNamespace) -> None:
    text = show_run(Console(file=io.StringIO(), width=40), now)
    assert "\x1b" not in text
    first, probe, *lines, lost, last = text.splitlines()
    assert first == "Server performance: 1000 samples, about 1:40"
    assert probe.startswith("Server performance: probe: 81.7 samples/s predicted")
    assert lost == "Server performance: replica-1 failed: exit by signal 9"
    assert last == "Server performance: VALID"
    assert [line.partition(" elapsed")[0] for line in lines] == [
        "Server performance: running, 0:10",
        "Server performance: running, 0:20",
        "Server performance: running, 0:30",
    ]


def test_terminal_output_of_a_run_is_redrawn(now: SimpleNamespace) -> None:
    text = show_run(Console(file=io.StringIO(), width=100, force_terminal=True), now)
    assert "\x1b[" in text
    assert "running, 0:10" not in text
    assert "replica-1 failed: exit by signal 9" in text


def test_no_color_has_no_colours(now: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    shown = Panel(console := Console(file=io.StringIO(), width=100, force_terminal=True))
    shown.begin(VIEW)
    shown.progress(progress(done=500, ttft=latency(1, 3000, 9, 500), devices=GPUS))
    shown.end()
    text = written(console)
    assert "above the limit" in text
    assert not any(f"\x1b[{colour}m" in text for colour in (31, 32, 33, 36, "1;31"))


# Starts


def starts(shown: Panel, now: SimpleNamespace) -> None:
    for done in (0.1, 0.5, 0.9):
        now.s += 6
        shown.starting(
            StartStatus({"a": Phase("loading weights", done), "b": Phase(READY)}, now.s - 50, {"initializing": 3})
        )
    shown.starting(StartStatus({"a": Phase(READY), "b": Phase(READY)}, 20, {"initializing": 3, "loading weights": 65}))


def test_plain_output_of_a_start_is_a_line_per_interval(now: SimpleNamespace) -> None:
    shown = Panel(console := Console(file=io.StringIO(), width=40))
    starts(shown, now)
    assert written(console).splitlines() == [
        "starting for 0:18: 1 of 2 ready; 1 loading weights 90%",
        "2 replica processes ready after 0:20 (initializing 0:03, loading weights 1:05)",
    ]


def test_terminal_output_of_a_start_is_redrawn(now: SimpleNamespace) -> None:
    shown = Panel(console := Console(file=io.StringIO(), width=100, force_terminal=True))
    starts(shown, now)
    text = written(console)
    assert "\x1b[2K" in text
    assert "2 replica processes ready after 0:20" in text.splitlines()[-1]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (30, 2), (5, 1)])
def test_view_of_a_start_fits_the_terminal(width: int, height: int) -> None:
    phases = {f"replica-{i}": Phase("compiling") if i % 2 else Phase("loading weights", i / 72) for i in range(72)}
    lines = [line.plain for line in start_lines(StartStatus(phases, 65), width, height)]
    assert len(lines) == min(height, 3)
    assert all(len(line) <= width for line in lines)
    if width == 80:
        assert lines == [
            "starting for 1:05: 0 of 72 ready; 36 compiling, 36 loading weights 0%",
            "  compiling: replica-1, replica-3, replica-5, replica-7 and 32 more",
            "  loading weights 0%: replica-0, replica-2, replica-4, replica-6 and 32 more",
        ]


def test_view_of_a_failed_start_ends(now: SimpleNamespace) -> None:
    shown = Panel(console := Console(file=io.StringIO(), width=100, force_terminal=True))
    shown.starting(StartStatus({"a": Phase("compiling")}, 5))
    shown.end()
    assert written(console).endswith("\x1b[2K")  # the view is erased
    assert shown._live is None


# Lines


def test_markup_in_texts_is_not_interpreted() -> None:
    console = Console(file=io.StringIO(), width=20)
    Panel(console).say("[bold]not markup[/bold] and longer than the terminal is wide")
    assert written(console) == "[bold]not markup[/bold] and longer than the terminal is wide\n"


def test_stage_progress_is_printed_in_tenths() -> None:
    console = Console(file=io.StringIO())
    shown = Panel(console)
    for text, done in (
        ("train", None),
        ("train", 0.01),
        ("train", 0.12),
        ("train", 0.19),
        ("train", 0.2),
        ("quantize", 0.2),
    ):
        shown.stage(text, done)
    assert written(console).splitlines() == ["train", "train (12%)", "train (20%)", "quantize (20%)"]
