"""Preparation stages of the demo: data set, training, quantization, reference scores."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from harness_llm.config.assets import Assets, Report, Stage
from harness_llm.config.benchmark import EVALUATION, Accuracy, Benchmark
from harness_llm.config.checkpoint import QUANTIZATION, TRAINING, checkpoint_digest, file_digest, read_record
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.hardware.gpus import NO_ACCELERATOR
from harness_llm.paths import Workspace
from harness_llm.prepare.demo.corpus import Split
from harness_llm.prepare.demo.tokenized import train_tokenizer, write_split
from harness_llm.prepare.quantize.job import Job
from harness_llm.prepare.quantize.quantize import quantize_checkpoint
from harness_llm.prepare.quantize.recipes import load_recipes
from harness_llm.prepare.stage import compiling, run_stage
from harness_llm.protocol.token_store import TokenStore, open_store

CALIBRATION_SAMPLES = 1000
# In a fresh environment Python compiles it for 15 s; the training leaves a core idle.
ENGINE = "harness_llm.replicas.engines.vllm"


def reference_sources(checkpoint: Path, store: TokenStore, max_tokens: int, accuracy: Accuracy) -> dict[str, object]:
    """Return the inputs of reference scores; a change of one makes the scores stale."""
    return {
        "checkpoint": checkpoint_digest(checkpoint),
        "dataset": store.digest,
        "max_tokens": max_tokens,
        **accuracy.model_dump(mode="json", include={"metrics", "scoring", "sentence_split"}),
    }


@dataclass(frozen=True)
class DemoPreparation:
    """Preparation of the demo; reference scores cover the first `samples` prompts.

    Attributes:
        quantizer: interpreter that runs llm-compressor; None: that of its environment.
    """

    benchmark: Benchmark
    workspace: Workspace
    samples: int
    quantizer: Path | None = None

    @property
    def assets(self) -> Assets:
        """Paths of the results."""
        data, models, benchmark = self.workspace.data, self.workspace.models, self.benchmark
        if benchmark.accuracy.reference is None:
            raise ConfigError("missing accuracy.reference", where="models/demo/benchmark.yaml")
        return Assets(
            checkpoint=models / benchmark.checkpoint.quantized,
            original=models / benchmark.checkpoint.original,
            stores={name: data / samples.file for name, samples in benchmark.dataset.sets.items()},
            calibration=data / benchmark.dataset.calibration,
            reference=self._reference,
        )

    @property
    def store(self) -> Path:
        """The evaluation set."""
        return self.assets.stores[EVALUATION]

    @property
    def tokenizer(self) -> Path:
        """The tokenizer for training; each checkpoint has a copy."""
        return self.store.with_name("tokenizer.json")

    def stages(self) -> list[Stage]:
        """All stages in order of dependency."""
        data, references = self.store.parent, self._reference.parent.parent
        original, quantized = self.assets.original.parent, self.assets.checkpoint.parent
        return [
            Stage("data set", None, self._has_dataset, self._make_dataset, data),
            Stage("train", None, self._has_checkpoint, self._train, original),
            Stage("quantize", "train", self._has_quantized, self._quantize, quantized),
            Stage("reference", "train", self._has_reference, self._answer, references),
        ]

    def _has_dataset(self) -> bool:
        counts = {
            self.store: self.benchmark.dataset.sets[EVALUATION].samples,
            self.assets.calibration: CALIBRATION_SAMPLES,
        }
        try:
            complete = all(len(open_store(store)) == count for store, count in counts.items())
        except (ConfigError, EnvironmentMissing):
            return False
        return complete and self.tokenizer.is_file()

    def _make_dataset(self, report: Report) -> None:
        """Train the tokenizer, then write the splits."""
        self.store.parent.mkdir(parents=True, exist_ok=True)
        train_tokenizer(self.tokenizer)
        tokenizer = Tokenizer.from_file(str(self.tokenizer))
        dataset = self.benchmark.dataset
        for path, split, count in (
            (self.assets.calibration, Split.CALIBRATION, CALIBRATION_SAMPLES),
            (self.store, Split.EVALUATION, dataset.sets[EVALUATION].samples),
        ):
            report(f"data set: {count} prompts for {split}", None)
            write_split(path, split, count, tokenizer, dataset.longest_prompt)

    def _has_checkpoint(self) -> bool:
        record = read_record(self.assets.original, TRAINING)
        tokenizer = self.tokenizer
        return bool(record and tokenizer.is_file() and record["files"]["tokenizer.json"] == file_digest(tokenizer))

    def _train(self, report: Report) -> None:
        options = {"--tokenizer": self.tokenizer, "--output": self.assets.original}
        with compiling(ENGINE):
            self._run("train", sys.executable, "harness_llm.prepare.demo.train", options, report)

    def _has_quantized(self) -> bool:
        record = read_record(self.assets.checkpoint, QUANTIZATION)
        return bool(record and record["source"] == checkpoint_digest(self.assets.original))

    def _quantize(self, report: Report) -> None:
        recipe = load_recipes(self.benchmark, self.workspace).choose("", NO_ACCELERATOR)
        job = Job(checkpoint=self.assets.original, output=self.assets.checkpoint, recipe=recipe)
        quantize_checkpoint(job, self.workspace, report, self.quantizer)

    @property
    def _reference(self) -> Path:
        return self.workspace.data / str(self.benchmark.accuracy.reference) / str(self.samples) / "scores.json"

    def _has_reference(self) -> bool:
        if not (self._has_dataset() and self._reference.is_file()):
            return False
        record = json.loads(self._reference.read_text())
        accuracy, sampling = self.benchmark.accuracy, self.benchmark.sampling
        store = open_store(self.store)
        wanted = reference_sources(self.assets.original, store, sampling.max_tokens, accuracy)
        return bool(record.items() >= wanted.items())

    def _answer(self, report: Report) -> None:
        options = {
            "--checkpoint": self.assets.original,
            "--store": self.store,
            "--samples": self.samples,
            "--max-tokens": self.benchmark.sampling.max_tokens,
            "--accuracy": self.benchmark.accuracy.model_dump_json(),
            "--output": self._reference.parent,
        }
        self._run("reference", sys.executable, "harness_llm.prepare.demo.reference", options, report)

    def _run(self, name: str, python: str, module: str, options: Mapping[str, object], report: Report) -> None:
        arguments = [str(word) for option in options.items() for word in option]
        run_stage([python, "-m", module, *arguments], self.workspace.stage_log(name), report)
