"""The current run as text: a line for logs, and lines for a terminal of a given size."""

from collections.abc import Iterator

from rich.text import Text

from harness_llm.pipeline.live.history import sparkline
from harness_llm.pipeline.live.predicted_verdict import DEGRADED, INVALID, VALID
from harness_llm.pipeline.live.run_progress import Latency, RunProgress, clock
from harness_llm.pipeline.live.summary import (
    REPLICA_COLUMNS,
    devices_text,
    latency_text,
    replica_row,
    replicas_text,
)

_BAR, _MIN_SPARKLINE = 24, 4
_NEAR = 0.9  # of a limit
STYLES = {VALID: "green", INVALID: "bold red", DEGRADED: "bold red"}


def run_line(progress: RunProgress) -> str:
    """Return the progress in one line."""
    times = f"{clock(progress.elapsed)} elapsed, {clock(progress.remaining)} left"
    facts = [f"{progress.done}/{progress.view.total} samples", f"{progress.tokens_per_second:,.0f} tokens/s"]
    facts += [f"{progress.unanswered} unanswered"] if progress.unanswered else []
    facts += [latency_text(latency) for latency in progress.latencies]
    facts += filter(None, [replicas_text(progress), *devices_text(progress.devices)])
    facts += [f"predicted {progress.verdict}"] if progress.verdict else []
    return f"{progress.view.name}: {progress.text}, {times}, {', '.join(facts)}"


def run_lines(progress: RunProgress, width: int, height: int, *, ascii_only: bool = False) -> list[Text]:
    """Return at most `height` lines of at most `width` columns, the most important ones first."""
    lines = [*_lines(progress, width, ascii_only=ascii_only), *_table(progress)]
    for line in lines:
        line.truncate(width, overflow="ellipsis" if not ascii_only else "crop")
    return lines[: max(height, 1)]


def _lines(progress: RunProgress, width: int, *, ascii_only: bool) -> Iterator[Text]:
    view, done = progress.view, progress.done
    share = min(done / view.total, 1.0) if view.total else 0.0
    head = Text.assemble((view.name, "bold"), "  ", _bar(share, "cyan", ascii_only=ascii_only), f" {share:.0%}")
    yield head.append(f"  {clock(progress.elapsed)} elapsed, {clock(progress.remaining)} left")
    samples = f"{done:,}/{view.total:,} samples, {progress.unanswered:,} unanswered, {progress.in_flight:,} in flight"
    yield Text(f"  {progress.text}  {samples}")
    rates = Text(f"  {progress.tokens_per_second:,.0f} tokens/s  ")
    room = width - len(rates) - 1
    if room >= _MIN_SPARKLINE and progress.rates:
        rates.append(sparkline(progress.history.means(room), ascii_only=ascii_only), style="cyan")
    yield rates
    for latency in progress.latencies:
        yield _latency(latency, ascii_only=ascii_only)
    if verdict := progress.verdict:
        yield Text.assemble("  predicted  ", (str(verdict), STYLES.get(verdict.state, "yellow")))
    for text in (replicas_text(progress), *devices_text(progress.devices)):
        if text:
            yield Text(f"  {text}")


def _bar(share: float, style: str, *, ascii_only: bool) -> Text:
    full, rest = ("#", "-") if ascii_only else ("━", "╌")
    filled = round(min(max(share, 0.0), 1.0) * _BAR)
    return Text(full * filled, style=style).append(rest * (_BAR - filled), style="dim")


def _latency(latency: Latency, *, ascii_only: bool) -> Text:
    """The p99 latency against its limit; words tell what the colours tell."""
    if not latency.limit_ms:
        return Text(f"  {latency_text(latency)}")
    used = latency.p99_ms / latency.limit_ms
    style = "red" if used >= 1 else "yellow" if used >= _NEAR else "green"
    mark = " above the limit" if used >= 1 else ""
    return Text.assemble("  ", _bar(used, style, ascii_only=ascii_only), f" {latency_text(latency)}{mark}")


def _table(progress: RunProgress) -> Iterator[Text]:
    """A row per replica, if there are several."""
    if len(progress.replicas) < 2:  # noqa: PLR2004 - one is in the summary
        return
    rows = [replica_row(status, progress.rates.get(status.name)) for status in progress.replicas]
    widths = [max(map(len, column)) for column in zip(REPLICA_COLUMNS, *rows, strict=True)]
    for row in (REPLICA_COLUMNS, *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(size) for cell, size in zip(row[1:], widths[1:], strict=True))]
        yield Text(f"  {'  '.join(cells)}", style="dim" if row is REPLICA_COLUMNS else "")
