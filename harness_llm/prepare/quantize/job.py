"""Quantization job: its description, and the part that all tools' programs share.

A program runs as `python -m harness_llm.prepare.quantize.<tool's module> JOB`, with JOB in JSON. It writes progress to
standard output, one JSON object per line.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from harness_llm.config.checkpoint import QUANTIZATION, checkpoint_digest, write_record
from harness_llm.errors import ConfigError
from harness_llm.fileio import replacing
from harness_llm.prepare.quantize.recipes import Recipe
from harness_llm.protocol.token_store import open_store, origin


class CalibrationSet(BaseModel):
    """The official calibration set: `file` as in benchmark.yaml, and its token store."""

    model_config = ConfigDict(frozen=True)

    file: str
    store: Path


class Job(BaseModel):
    """Source checkpoint, recipe and output folder.

    Attributes:
        calibration: None for a recipe without calibration.
    """

    model_config = ConfigDict(frozen=True)

    checkpoint: Path
    output: Path
    recipe: Recipe
    calibration: CalibrationSet | None = None

    def prompts(self) -> list[list[int]]:
        """Return the first samples of the calibration set, truncated to the recipe's sequence length.

        Raises:
            ConfigError: the set is missing, or has fewer samples than the recipe requires.
        """
        amount = self.recipe.calibration
        if not (amount and self.calibration):
            return []
        store = open_store(self.calibration.store)
        if len(store) < amount.samples:
            raise ConfigError(
                f"too few calibration samples for {self.recipe.name}",
                where=self.calibration.file,
                expected=f">= {amount.samples}",
                found=str(len(store)),
            )
        prompts = [store.prompt(index).tolist() for index in range(amount.samples)]
        if self.recipe.joined:
            return pieces(prompts, amount.sequence_length)
        return [prompt[: amount.sequence_length] for prompt in prompts]

    def calibration_record(self) -> dict[str, Any]:
        """Return the record of the samples; sha256 is that of the file, or of a store made on this machine."""
        amount = self.recipe.calibration
        if not (amount and self.calibration):
            return {}
        store = self.calibration.store
        digest = origin(store).get("sha256") or open_store(store).digest
        record = {"file": self.calibration.file, "sha256": digest, **amount.model_dump()}
        return record | ({"joined": "end to end, and cut into pieces of that length"} if self.recipe.joined else {})


def pieces(prompts: Sequence[list[int]], length: int) -> list[list[int]]:
    """Concatenate `prompts` and cut them into pieces of `length`; drop the remainder."""
    tokens = list(itertools.chain.from_iterable(prompts))
    return [tokens[start : start + length] for start in range(0, len(tokens) - length + 1, length)]


Quantize = Callable[[Job, Path], None]
"""Function that writes the quantized checkpoint of a job into an existing folder."""


def run_job(quantize: Quantize, package: str) -> None:
    """Run the job of the command line; the output folder appears when it is complete.

    Args:
        package: the tool's distribution; the record contains its version.
    """
    job = Job.model_validate_json(sys.argv[1])
    started = time.monotonic()
    name = job.recipe.name
    _status(0.0, f"{name} of {job.checkpoint.name}")
    with replacing(job.output) as folder:
        quantize(job, folder)
        write_record(
            folder,
            QUANTIZATION,
            recipe=job.recipe.model_dump(exclude={"calibration"}, exclude_defaults=True),
            tool={"name": package, "version": version(package)},
            calibration=job.calibration_record(),
            source=checkpoint_digest(job.checkpoint),
            seconds=round(time.monotonic() - started, 1),
        )
    _status(1.0, f"{name} written")


def _status(done: float, text: str) -> None:
    print(json.dumps({"stage": "quantize", "done": done, "text": text}), flush=True)  # noqa: T201
