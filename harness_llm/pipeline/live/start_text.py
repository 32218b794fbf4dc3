"""A starting replica pool as text: a line for logs, and lines for a terminal of a given size."""

from collections.abc import Iterator

from rich.text import Text

from harness_llm.pipeline.live.run_progress import clock
from harness_llm.replicas.start_progress import StartStatus

_NAMES = 4


def start_line(status: StartStatus) -> str:
    """Return the phases in one line."""
    return f"starting for {clock(status.elapsed_s)}: {status.text}"


def ready_line(status: StartStatus) -> str:
    """Return the duration of a finished start, and of each phase in the process that needed longest for it."""
    phases = ", ".join(f"{name} {clock(seconds)}" for name, seconds in status.seconds.items() if seconds >= 1)
    count = len(status.phases)
    return f"{count} replica process{'es' * (count > 1)} ready after {clock(status.elapsed_s)}" + (
        f" ({phases})" if phases else ""
    )


def start_lines(status: StartStatus, width: int, height: int) -> list[Text]:
    """Return at most `height` lines of at most `width` columns: all processes, then those of each phase."""
    lines = [Text(start_line(status), style="bold"), *(_groups(status) if len(status.phases) > 1 else ())]
    for line in lines:
        line.truncate(width)
    return lines[: max(height, 1)]


def _groups(status: StartStatus) -> Iterator[Text]:
    for phase, names in status.waiting:
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        yield Text(f"  {phase}: {', '.join(names[:_NAMES])}{more}")
