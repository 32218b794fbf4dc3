"""What a benchmark is: `models/<name>/benchmark.yaml`."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness_llm.documents import read_yaml
from harness_llm.errors import ConfigError
from harness_llm.workspace import Workspace

Metric = Literal["ROUGE1", "ROUGE2", "ROUGEL", "TOKENS_PER_SAMPLE"]


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sampling(_Facts):
    """How tokens are chosen; fixed by the rules, so nothing in the engine settings may touch it."""

    temperature: float
    min_tokens: int
    max_tokens: int
    stop_token_ids: tuple[int, ...]


class Dataset(_Facts):
    """Token stores below `build/data`; `longest_prompt` in token ids."""

    evaluation: str
    calibration: str
    samples: int
    longest_prompt: int


class Checkpoint(_Facts):
    """Folders below `build/models`."""

    original: str
    quantized: str


class Accuracy(_Facts):
    """What is scored, and against what.

    A benchmark with a `reference` folder is gated at `share_of_reference` of the scores found there, with the tokens
    per sample within `tokens_within` of it; one without is gated by the rules of its round.
    """

    metrics: tuple[Metric, ...]
    sentence_split: bool
    reference: str | None = None
    share_of_reference: float = 0.99
    tokens_within: float = 0.10


class Benchmark(_Facts):
    """One benchmark; `rules_of` is the official variant that it is judged by."""

    name: str
    title: str
    rules_of: str
    divisions: tuple[Literal["closed", "open"], ...]
    tree_suffix: str = Field(default="", description="appended to inference_results_<round>")
    sampling: Sampling
    dataset: Dataset
    checkpoint: Checkpoint
    accuracy: Accuracy
    measurements: dict[str, str]

    @property
    def mapped(self) -> bool:
        """Whether the tree needs a model_mapping.json (open division, a name of its own)."""
        return self.name != self.rules_of


def benchmark_names(workspace: Workspace) -> list[str]:
    """All benchmarks that have a file."""
    return sorted(f.parent.name for f in workspace.benchmarks.glob("*/benchmark.yaml"))


def load_benchmark(name: str, workspace: Workspace) -> Benchmark:
    """Read `models/<name>/benchmark.yaml`."""
    file: Path = workspace.benchmarks / name / "benchmark.yaml"
    if not file.is_file():
        raise ConfigError(
            f"there is no benchmark {name}",
            where=str(file),
            expected=", ".join(benchmark_names(workspace)),
        )
    try:
        return Benchmark.model_validate(read_yaml(file))
    except ValidationError as error:
        raise ConfigError("a benchmark file is wrong", where=str(file), found=str(error)) from error
