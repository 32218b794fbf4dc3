"""What the current command does: the start of a replica pool, the current run, and the finished runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness_llm.pipeline.live.run_progress import RunProgress
from harness_llm.replicas.start_progress import StartStatus


@dataclass
class LiveState:
    """Read by the terminal's thread and that of the metrics; each field is replaced as a whole.

    Attributes:
        start: phases of the replica pool that was started last.
        run: the current run; None between runs.
        finished: number of finished runs by state.
    """

    start: StartStatus | None = None
    run: RunProgress | None = None
    finished: Mapping[str, int] = field(default_factory=dict)

    def count(self, state: str) -> None:
        """Count a finished run."""
        self.finished = {**self.finished, state: self.finished.get(state, 0) + 1}
