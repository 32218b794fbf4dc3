"""The definition of a benchmark, `models/<name>/benchmark.yaml`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness_llm.errors import ConfigError
from harness_llm.fileio import read_yaml
from harness_llm.paths import Workspace

Metric = Literal[
    "ROUGE1", "ROUGE2", "ROUGEL", "ROUGELSUM", "EXACT_MATCH", "GSM8K", "MBXP", "TOKENS_PER_SAMPLE", "GEN_LEN"
]
Scoring = Literal["rouge", "niah_em", "qa_em", "gsm8k", "mbxp", "exact", "deepseek-r1", "gpt-oss-120b"]

EVALUATION = "evaluation"


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sampling(_Facts):
    """Sampling parameters; the rules fix them, so engine settings cannot change them.

    Attributes:
        top_k: 0 is off.
        beams: more than 1 for beam search, which only some engines support.
        stop_sequences: by kind of sample, sequences of token ids that also end an answer.
    """

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    beams: int = 1
    min_tokens: int
    max_tokens: int
    stop_token_ids: tuple[int, ...]
    stop_sequences: dict[str, tuple[tuple[int, ...], ...]] = {}

    def changed(self, values: Mapping[str, Any]) -> "Sampling":
        """A copy with `values` replaced."""
        return Sampling.model_validate(self.model_dump() | dict(values))


class SampleSet(_Facts):
    """A set of samples: a file below the data folder, and its number of samples."""

    file: str
    samples: int


class Dataset(_Facts):
    """The data set; `longest_prompt` in token ids.

    Attributes:
        source: the module that reads the files, `harness_llm.prepare.datasets.sources`.
        calibration: file of the official calibration set.
        sets: `evaluation`, and separate sets of tests (accuracy, TEST07).
        made_by: the command that converts the downloaded files, if necessary; a program of the environment (.venv,
            .venv-cuda) and its arguments.
        mean_tokens: mean tokens of a running query in the KV cache, its prompt and its answer so far, for the warning
            of a small cache; 0 if no lengths are published. The engine does not get it.
    """

    source: str
    calibration: str
    sets: dict[str, SampleSet]
    longest_prompt: int
    mean_tokens: float = 0
    made_by: str = ""

    def of(self, test: str) -> SampleSet:
        """The samples of `test`."""
        return self.sets.get(test, self.sets[EVALUATION])


class Checkpoint(_Facts):
    """Folders below `build/models`; both are equal for a checkpoint that is served without quantization.

    Attributes:
        config: published config.json of the original, a file below models/; empty if none is published.
        draft: draft head for speculative decoding, if a scenario has one.
    """

    original: str
    quantized: str
    config: str = ""
    draft: str = ""


class Download(_Facts):
    """The source of one part of a benchmark: an MLCommons metadata URI, or a Hugging Face repository.

    Attributes:
        part: `model` and `draft`, a head for speculative decoding, are saved in `folder` of the models folder, the
            others of the data folder; an evaluator of the reference loads `livecodebench`.
        uri: of the metadata file, `https://…/metadata/<name>.uri`.
        repo: with its `revision`, a commit.
        files: patterns of the required files of a list or repository; all if empty.
        gb: size, for the check of free space; data sets are smaller than the default.
        gated: whether the repository requires a token of an owner who accepted its licence.
    """

    part: Literal["dataset", "calibration", "livecodebench", "model", "draft"]
    folder: str
    uri: str = ""
    repo: str = ""
    repo_type: Literal["model", "dataset"] = "model"
    revision: str = ""
    files: tuple[str, ...] = ()
    gb: float = 2
    gated: bool = False

    @property
    def of_models(self) -> bool:
        """Whether it is saved in the models folder."""
        return self.part in ("model", "draft")


class Accuracy(_Facts):
    """Metrics, scoring methods and gates of the accuracy.

    The gates of a benchmark with a `reference` folder are `share_of_reference` of the scores there, and tokens per
    sample within `tokens_within` of it; other benchmarks have the gates of the round. The probe allows the same
    deviation of lengths.

    Attributes:
        scoring: scoring method by kind of sample; the kind is "" for a data set with one kind.
        sentence_split: whether each sentence is on its own line, which changes ROUGELSUM and GEN_LEN.
    """

    metrics: tuple[Metric, ...]
    scoring: dict[str, Scoring] = {"": "rouge"}
    sentence_split: bool
    reference: str | None = None
    share_of_reference: float = 0.99
    tokens_within: float = 0.10


class Benchmark(_Facts):
    """One benchmark.

    Attributes:
        preparer: source of checkpoint and data sets: `published` ones are downloaded, others are made here.
        variants: official variants, strictest first.
        mapped: whether a tree uses the benchmark's own name, which model_mapping.json maps to the first variant.
        engine: default engine.
        engine_of: the benchmark whose engine settings are used, itself if empty.
        engine_scenarios: the scenario of `engine_of` for each scenario with another name.
        sampling_of: by test, sampling parameters that differ.
        obstacle: why results can never be submitted; empty if they can.
    """

    name: str
    title: str
    preparer: Literal["published", "demo", "stand-in"] = "published"
    variants: tuple[str, ...]
    mapped: bool = False
    divisions: tuple[Literal["closed", "open"], ...] = ("closed", "open")
    tree_suffix: str = Field(default="", description="appended to inference_results_<round>")
    obstacle: str = ""
    engine: str = "vllm"
    engine_of: str = ""
    engine_scenarios: dict[str, str] = {}
    sampling: Sampling
    sampling_of: dict[str, dict[str, Any]] = {}
    dataset: Dataset
    checkpoint: Checkpoint
    downloads: tuple[Download, ...] = ()
    accuracy: Accuracy
    measurements: dict[str, str]

    @model_validator(mode="after")
    def _require_obstacle(self) -> Self:
        """A tree that is separate from results requires a reason."""
        if self.tree_suffix and not self.obstacle:
            raise ValueError("tree_suffix without obstacle")
        return self

    @property
    def settings(self) -> str:
        """The folder of models/ with the engine settings."""
        return self.engine_of or self.name

    def sampling_for(self, test: str) -> Sampling:
        """The sampling of `test`."""
        return self.sampling.changed(self.sampling_of.get(test, {}))


def benchmark_names(workspace: Workspace) -> list[str]:
    """All benchmarks, by name."""
    return sorted(f.parent.name for f in workspace.benchmarks.glob("*/benchmark.yaml"))


def _facts(file: Path) -> dict[str, Any]:
    """The content of a benchmark file, merged by key with that of the benchmark that it `extends`."""
    own: dict[str, Any] = read_yaml(file)
    base = own.pop("extends", None)
    return _merged(_facts(file.parent.with_name(base) / file.name), own) if base else own


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    both = {key: _merged(base[key], value) for key, value in own.items() if isinstance(value, dict) and key in base}
    return base | own | both


def load_benchmark(name: str, workspace: Workspace) -> Benchmark:
    """Read `models/<name>/benchmark.yaml`.

    Raises:
        ConfigError: unknown benchmark, or invalid file.
    """
    file: Path = workspace.benchmarks / name / "benchmark.yaml"
    if not file.is_file():
        raise ConfigError(
            f"unknown benchmark {name}",
            where=str(file),
            expected=", ".join(benchmark_names(workspace)),
        )
    try:
        return Benchmark.model_validate(_facts(file))
    except ValidationError as error:
        raise ConfigError("a benchmark file is wrong", where=str(file), found=str(error)) from error
