"""Everything that a run of the demo needs, made stage by stage: data set, checkpoint, quantization, reference scores.

A stage is done when its result is complete and was made from what is there now, so that the same call again continues.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from harness_llm.benchmarks import Benchmark
from harness_llm.checkpoint import checkpoint_digest, file_digest, read_record
from harness_llm.datasets.store import TokenStore, open_store
from harness_llm.demo.corpus import Split
from harness_llm.demo.dataset import train_tokenizer, write_split
from harness_llm.demo.stage import Report, run_stage
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.workspace import CHECKOUT, Workspace

CALIBRATION_SAMPLES = 1000
TRAINING_RECORD = "manifest.json"
QUANTIZATION_RECORD = "quantization.json"


@dataclass(frozen=True)
class Assets:
    """Paths of what the stages made.

    Attributes:
        checkpoint: the quantized checkpoint, which is served.
        original: the checkpoint that it was made from.
        evaluation: token store.
        calibration: token store.
        reference: scores of the original checkpoint, JSON.
        tokenizer: tokenizer.json.
    """

    checkpoint: Path
    original: Path
    evaluation: Path
    calibration: Path
    reference: Path
    tokenizer: Path


def locate(benchmark: Benchmark, workspace: Workspace, samples: int) -> Assets:
    """Where the assets of `benchmark` are, or will be; `reference` scores the first `samples` prompts."""
    data, models = workspace.data.resolve(), workspace.models.resolve()
    if benchmark.accuracy.reference is None:
        raise ConfigError("the benchmark names no reference", where="accuracy.reference")
    return Assets(
        checkpoint=models / benchmark.checkpoint.quantized,
        original=models / benchmark.checkpoint.original,
        evaluation=data / benchmark.dataset.evaluation,
        calibration=data / benchmark.dataset.calibration,
        reference=data / benchmark.accuracy.reference / str(samples) / "scores.json",
        tokenizer=(data / benchmark.dataset.evaluation).with_name("tokenizer.json"),
    )


def prepare(benchmark: Benchmark, workspace: Workspace, samples: int, report: Report) -> Assets:
    """Make what is missing; reference scores are those of the first `samples` prompts.

    Args:
        report: is told what is being done, and how much of it is, 0 to 1 or None.

    Raises:
        EnvironmentMissing: there is no environment to quantize in.
        RunFailed: a stage failed; its log is named.
        ConfigError: a checkpoint is damaged.
    """
    preparation = Preparation(benchmark, workspace, samples)
    for stage in preparation.stages():
        if not stage.done():
            report(stage.name, None)
            stage.make(report)
    return preparation.assets


def missing(benchmark: Benchmark, workspace: Workspace, samples: int) -> list[str]:
    """The stages that `prepare` would go through."""
    names: list[str] = []
    for stage in Preparation(benchmark, workspace, samples).stages():
        if stage.source in names or not stage.done():
            names.append(stage.name)
    return names


def reference_sources(
    checkpoint: Path, store: TokenStore, max_tokens: int, metrics: Sequence[str]
) -> dict[str, object]:
    """By what reference scores are known to be of today's checkpoint, data set and demands."""
    return {
        "checkpoint": checkpoint_digest(checkpoint),
        "dataset": store.digest,
        "max_tokens": max_tokens,
        "metrics": list(metrics),
    }


@dataclass(frozen=True)
class Stage:
    """One step: `done` looks, `make` does it; doing `source` again makes it stale."""

    name: str
    source: str | None
    done: Callable[[], bool]
    make: Callable[[Report], None]


@dataclass(frozen=True)
class Preparation:
    """The stages of one benchmark in one checkout."""

    benchmark: Benchmark
    workspace: Workspace
    samples: int
    quantizer: Path = CHECKOUT / ".venv-quantize" / "bin" / "python"  # has llm-compressor

    @property
    def assets(self) -> Assets:
        """Where everything lands."""
        return locate(self.benchmark, self.workspace, self.samples)

    def stages(self) -> list[Stage]:
        """All stages; each needs the ones before it."""
        return [
            Stage("data set", None, self._has_dataset, self._make_dataset),
            Stage("train", None, self._has_checkpoint, self._train),
            Stage("quantize", "train", self._has_quantized, self._quantize),
            Stage("reference", "train", self._has_reference, self._answer),
        ]

    def _has_dataset(self) -> bool:
        stores = (self.assets.evaluation, self.assets.calibration)
        if not all((store / "manifest.json").is_file() for store in stores) or not self.assets.tokenizer.is_file():
            return False
        return len(open_store(self.assets.evaluation)) == self.benchmark.dataset.samples

    def _make_dataset(self, report: Report) -> None:
        """Splits are written after the tokenizer that encodes them."""
        self.assets.evaluation.parent.mkdir(parents=True, exist_ok=True)
        train_tokenizer(self.assets.tokenizer)
        tokenizer = Tokenizer.from_file(str(self.assets.tokenizer))
        dataset = self.benchmark.dataset
        for path, split, count in (
            (self.assets.calibration, Split.CALIBRATION, CALIBRATION_SAMPLES),
            (self.assets.evaluation, Split.EVALUATION, dataset.samples),
        ):
            report(f"data set: {count} prompts for {split}", None)
            write_split(path, split, count, tokenizer, dataset.longest_prompt)

    def _has_checkpoint(self) -> bool:
        record = read_record(self.assets.original, TRAINING_RECORD)
        tokenizer = self.assets.tokenizer
        return bool(record and tokenizer.is_file() and record["files"]["tokenizer.json"] == file_digest(tokenizer))

    def _train(self, report: Report) -> None:
        options = {"--tokenizer": self.assets.tokenizer, "--output": self.assets.original}
        self._run("train", sys.executable, "harness_llm.demo.train", options, report)

    def _has_quantized(self) -> bool:
        record = read_record(self.assets.checkpoint, QUANTIZATION_RECORD)
        return bool(record and record["source"] == checkpoint_digest(self.assets.original))

    def _quantize(self, report: Report) -> None:
        if not self.quantizer.is_file():
            raise EnvironmentMissing(
                "the environment to quantize in is not there", where=str(self.quantizer), hint="make setup"
            )
        options = {"--checkpoint": self.assets.original, "--output": self.assets.checkpoint}
        self._run("quantize", str(self.quantizer), "harness_llm.quantize.fp8", options, report)

    def _has_reference(self) -> bool:
        if not (self._has_dataset() and self.assets.reference.is_file()):
            return False
        record = json.loads(self.assets.reference.read_text())
        accuracy, sampling = self.benchmark.accuracy, self.benchmark.sampling
        store = open_store(self.assets.evaluation)
        wanted = reference_sources(self.assets.original, store, sampling.max_tokens, accuracy.metrics)
        return bool(record.items() >= wanted.items())

    def _answer(self, report: Report) -> None:
        options = {
            "--checkpoint": self.assets.original,
            "--store": self.assets.evaluation,
            "--samples": self.samples,
            "--max-tokens": self.benchmark.sampling.max_tokens,
            "--metrics": ",".join(self.benchmark.accuracy.metrics),
            "--output": self.assets.reference.parent,
        }
        self._run("reference", sys.executable, "harness_llm.demo.reference", options, report)

    def _run(self, name: str, python: str, module: str, options: Mapping[str, object], report: Report) -> None:
        arguments = [str(word) for option in options.items() for word in option]
        run_stage([python, "-m", module, *arguments], self.workspace.root / "build" / "assets" / f"{name}.log", report)
