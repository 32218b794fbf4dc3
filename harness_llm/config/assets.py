"""What a run needs besides its settings: a checkpoint, data sets, reference scores; put in place stage by stage.

A stage is done when its result is complete and was made from what is there now, so that the same call again continues.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness_llm.config.benchmark import EVALUATION

Report = Callable[[str, float | None], None]
"""Is told what is being done, and how much of it is, 0 to 1 or None."""


@dataclass(frozen=True)
class Assets:
    """Where everything lies, or will lie.

    Attributes:
        checkpoint: the one that is served.
        original: the one that it was made from.
        stores: token stores, by the name of the sample set; `sources` are the files that they were made from.
        calibration: token store.
        reference: scores of the original checkpoint, JSON; None where the round's gates hold.
        draft: head for speculative decoding, where a scenario has one.
        livecodebench: folder of LiveCodeBench's data set, which the reference's evaluators load; None for others.
    """

    checkpoint: Path
    original: Path
    stores: Mapping[str, Path]
    calibration: Path
    reference: Path | None = None
    sources: Mapping[str, Path] = field(default_factory=dict)
    livecodebench: Path | None = None
    draft: Path | None = None

    def store(self, test: str) -> Path:
        """The samples that `test` asks."""
        return self.stores.get(test, self.stores[EVALUATION])

    def source(self, test: str) -> Path:
        """The file that the samples of `test` were read from."""
        return self.sources.get(test, self.sources[EVALUATION])

    @property
    def tokenizer(self) -> Path:
        """tokenizer.json, which turns answers into texts."""
        return self.checkpoint / "tokenizer.json"


@dataclass(frozen=True)
class Stage:
    """One step: `done` looks, `make` does it; doing `source` again makes it stale."""

    name: str
    source: str | None
    done: Callable[[], bool]
    make: Callable[[Report], None]


class Preparation(Protocol):
    """The stages of one benchmark in one workspace."""

    @property
    def assets(self) -> Assets:
        """Where everything lands."""

    def stages(self) -> list[Stage]:
        """All stages; each needs the ones before it."""


def prepare(preparation: Preparation, report: Report) -> Assets:
    """Go through the stages that are not done.

    Raises:
        EnvironmentMissing: something is not there that this program does not make itself.
        RunFailed: a stage failed; its log is named.
        ConfigError: a file is damaged.
    """
    for stage in preparation.stages():
        if not stage.done():
            report(stage.name, None)
            stage.make(report)
    return preparation.assets


def missing(preparation: Preparation) -> list[str]:
    """The stages that `prepare` would go through."""
    names: list[str] = []
    for stage in preparation.stages():
        if stage.source in names or not stage.done():
            names.append(stage.name)
    return names
