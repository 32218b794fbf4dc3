import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from harness_llm.config.rules import LatencyLimit
from harness_llm.pipeline import panel
from harness_llm.pipeline.panel import Panel, RunProgress, RunView, clock

VIEW = RunView("Server performance", total=1000, predicted_s=100, limit=LatencyLimit(ttft=2000, tpot=200))


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time, to be set."""
    time = SimpleNamespace(s=50.0)
    monkeypatch.setattr(panel, "time", SimpleNamespace(monotonic=lambda: time.s))
    return time


def progress(done: int, tokens: int = 0, **figures: object) -> dict[str, object]:
    return {"event": "progress", "done": done, "tokens": tokens, "in_flight": 7, **figures}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (5.4, "0:05"), (59.6, "1:00"), (725, "12:05"), (3599.7, "1:00:00"), (3725, "1:02:05"), (-3, "0:00")],
)
def test_durations_are_rendered(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_remaining_time_follows_the_prediction_then_the_samples(now: SimpleNamespace) -> None:
    run_key = RunProgress(VIEW, began=now.s)
    assert run_key.remaining == 100
    now.s += 10
    run_key.take({"event": "started"})
    now.s += 20
    run_key.take(progress(done=49))
    assert run_key.remaining == 80  # too few to tell
    run_key.take(progress(done=100))
    assert run_key.remaining == pytest.approx(180)
    run_key.take(progress(done=1000))
    assert run_key.remaining == 0


def test_progress_line_has_the_figures_of_the_run(now: SimpleNamespace) -> None:
    run_key = RunProgress(VIEW)
    run_key.take({"event": "started"})
    now.s += 20
    run_key.take(progress(done=250, tokens=50_000, ttft_ms=[12.34, 99.99], tpot_ms=[1, 2]))
    assert run_key.line() == (
        "Server performance: running, 0:20 elapsed, 1:00 left, 250/1000 samples, 2,500 tokens/s, 7 in flight, "
        "TTFT p50 12.3 p99 100.0 ms (limit 2000), TPOT p50 1.0 p99 2.0 ms (limit 200)"
    )


def test_prediction_of_the_probe_replaces_that_of_the_plan(now: SimpleNamespace) -> None:
    run_key = RunProgress(VIEW, began=now.s)
    run_key.take(PROBED)
    assert run_key.text == (
        "probe: 81.7 samples/s predicted (70 to 90), 24,020 tokens/s, run of 2:05; 31.0 s of load, 0.3 s of drain"
    )
    run_key.take({"event": "started"})
    assert run_key.remaining == 125


def test_probe_without_a_prediction_has_a_reason() -> None:
    run_key = RunProgress(VIEW)
    run_key.take({"event": "probed", "prediction": None, "reason": "a replica failed"})
    assert run_key.text == "probe: no prediction: a replica failed"
    assert run_key.predicted_s == VIEW.predicted_s


def test_queries_in_flight_are_shown_per_replica(now: SimpleNamespace) -> None:
    run_key = RunProgress(VIEW)
    run_key.take(progress(done=1, loads=[[3, 50], [9, 0], [4, 7]]))
    assert "7 in flight (3 to 9 with each of 3)" in run_key.facts()


def test_figures_without_limits_are_shown_alone(now: SimpleNamespace) -> None:
    run_key = RunProgress(RunView("SingleStream performance", 10, 5))
    run_key.take(progress(done=1, ttft_ms=[1, 2]))
    assert "TTFT p50 1.0 p99 2.0 ms" in run_key.facts()


PROBED = {
    "event": "probed",
    "prediction": {
        "samples_per_second": 81.7,
        "low": 70,
        "high": 90,
        "tokens_per_second": 24_020,
        "run_s": 125,
        "load_s": 31,
        "drain_s": 0.3,
    },
}


def speak(console: Console, now: SimpleNamespace) -> str:
    """A whole run, 30 s long, with a status line each second."""
    shown = Panel(console)
    shown.begin(VIEW)
    shown.progress(PROBED)
    shown.progress({"event": "started"})
    for second in range(30):
        now.s += 1
        shown.progress(progress(done=second * 33, tokens=second * 660))
    shown.end("Server performance: VALID")
    shown.progress(progress(done=1))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_plain_output_is_a_line_per_interval(now: SimpleNamespace) -> None:
    text = speak(Console(file=io.StringIO(), width=40), now)
    assert "\x1b" not in text
    first, probe, *lines, last = text.splitlines()
    assert first == "Server performance: 1000 samples, about 1:40"
    assert probe.startswith("Server performance: probe: 81.7 samples/s predicted")
    assert last == "Server performance: VALID"
    assert [line.partition(" elapsed")[0] for line in lines] == [
        "Server performance: running, 0:10",
        "Server performance: running, 0:20",
        "Server performance: running, 0:30",
    ]


def test_terminal_output_is_redrawn(now: SimpleNamespace) -> None:
    text = speak(Console(file=io.StringIO(), width=100, force_terminal=True), now)
    assert "\x1b[" in text
    assert "running, 0:10" not in text


def test_markup_in_texts_is_not_interpreted() -> None:
    console = Console(file=io.StringIO(), width=20)
    Panel(console).say("[bold]not markup[/bold] and longer than the terminal is wide")
    assert console.file.getvalue() == "[bold]not markup[/bold] and longer than the terminal is wide\n"


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
    assert console.file.getvalue().splitlines() == ["train", "train (12%)", "train (20%)", "quantize (20%)"]
