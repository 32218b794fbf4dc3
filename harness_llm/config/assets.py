"""The assets of a benchmark: checkpoint, data sets and reference scores, and the stages that make them.

A stage is done if its result is complete and was made from the current sources, so `prepare` continues after an
interruption.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness_llm.config.benchmark import EVALUATION

Report = Callable[[str, float | None], None]
"""Takes the name of a step and its progress, from 0 to 1 or None."""


@dataclass(frozen=True)
class Assets:
    """The paths of the assets, which may not exist yet.

    Attributes:
        checkpoint: the served checkpoint.
        original: the checkpoint before quantization.
        stores: token stores by sample set; `sources` are the files that they were made from.
        calibration: token store.
        reference: scores of the original checkpoint, JSON; None if the gates are those of the round.
        draft: draft head for speculative decoding, if a scenario has one.
        livecodebench: folder of LiveCodeBench's data set, if the evaluators of the reference load it.
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
        """The token store of `test`."""
        return self.stores.get(test, self.stores[EVALUATION])

    def source(self, test: str) -> Path:
        """The source file of the samples of `test`."""
        return self.sources.get(test, self.sources[EVALUATION])

    @property
    def tokenizer(self) -> Path:
        """tokenizer.json, which converts answers to texts."""
        return self.checkpoint / "tokenizer.json"


@dataclass(frozen=True)
class Stage:
    """One step of a preparation; it is also stale if the stage `source` is not done.

    Attributes:
        folder: into which `make` writes, besides logs; None if it only refuses.
    """

    name: str
    source: str | None
    done: Callable[[], bool]
    make: Callable[[Report], None]
    folder: Path | None = None


class Preparation(Protocol):
    """The stages of one benchmark in one workspace."""

    @property
    def assets(self) -> Assets:
        """The paths of the assets."""

    def stages(self) -> list[Stage]:
        """All stages, in order."""


def prepare(preparation: Preparation, report: Report) -> Assets:
    """Make the stages that are not done.

    Raises:
        EnvironmentMissing: a file is missing that harness-llm cannot make.
        RunFailed: a stage failed.
        ConfigError: a file is damaged.
    """
    for stage in preparation.stages():
        if not stage.done():
            report(stage.name, None)
            stage.make(report)
    return preparation.assets


def unfinished(preparation: Preparation) -> list[Stage]:
    """The stages that `prepare` would make."""
    found: dict[str, Stage] = {}
    for stage in preparation.stages():
        if stage.source in found or not stage.done():
            found[stage.name] = stage
    return list(found.values())


def missing(preparation: Preparation) -> list[str]:
    """The names of the unfinished stages."""
    return [stage.name for stage in unfinished(preparation)]
