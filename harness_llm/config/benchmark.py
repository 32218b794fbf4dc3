"""What a benchmark is: `models/<name>/benchmark.yaml`."""

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
    """How tokens are chosen; fixed by the rules, so nothing in the engine settings may touch it.

    Attributes:
        top_k: 0 is off.
        beams: above 1 is beam search, which not every engine has.
        stop_sequences: by kind of sample, runs of token ids that end an answer too.
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
        """The same, but for `values`."""
        return Sampling.model_validate(self.model_dump() | dict(values))


class SampleSet(_Facts):
    """Samples of one purpose: a source file below the data folder, and how many samples it holds."""

    file: str
    samples: int


class Dataset(_Facts):
    """What is asked of the model; `longest_prompt` in token ids.

    Attributes:
        source: the module that reads the files, `harness_llm.prepare.datasets.sources`.
        calibration: the file of the official calibration set.
        sets: `evaluation`, and sets of their own by test (accuracy, TEST07).
        made_by: the command that makes the files of what is downloaded, where they are not published as they are
            read; a program of the environment (.venv, .venv-cuda) and its arguments.
        mean_tokens: published mean length of answers, with prompts where published, by which the submitter is warned
            of a small KV cache; 0 where none is published. Nothing of it reaches the engine.
    """

    source: str
    calibration: str
    sets: dict[str, SampleSet]
    longest_prompt: int
    mean_tokens: float = 0
    made_by: str = ""

    def of(self, test: str) -> SampleSet:
        """The samples that `test` asks."""
        return self.sets.get(test, self.sets[EVALUATION])


class Checkpoint(_Facts):
    """Folders below `build/models`; both are the same where the benchmark's own checkpoint is served as it is.

    Attributes:
        config: the published config.json of the original, a file below models/; empty where none is published.
        draft: the head that proposes tokens, where a scenario speculates with one of its own.
    """

    original: str
    quantized: str
    config: str = ""
    draft: str = ""


class Download(_Facts):
    """Where one part of a benchmark comes from: an MLCommons metadata URI, or a Hugging Face repository.

    Attributes:
        part: `model` and `draft`, a head for speculative decoding, land below the models folder, the others below the
            data folder, in `folder`; `livecodebench` is what an evaluator of the reference loads.
        uri: of the metadata file, `https://…/metadata/<name>.uri`.
        repo: with its `revision`, a commit.
        files: patterns of the files that are wanted of a list or repository; all if empty.
        gb: size, for the check of free space; the data sets have less than the default.
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
        """Whether it lands below the models folder."""
        return self.part in ("model", "draft")


class Accuracy(_Facts):
    """What is scored, how, and against what.

    A benchmark with a `reference` folder is gated at `share_of_reference` of the scores found there, with the tokens
    per sample within `tokens_within` of it; one without is gated by the rules of its round. The probe allows for the
    same share of other lengths.

    Attributes:
        scoring: how the samples of each kind are scored; the kind is "" where a data set has but one.
        sentence_split: whether sentences stand on lines of their own, which ROUGELSUM and GEN_LEN see.
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
        preparer: who puts checkpoint and data sets in place: the user, or this program (demo, stand-in).
        variants: the official variants that a result can stand for, strictest first.
        mapped: whether a tree shows it under its own name, which model_mapping.json maps to the first variant.
        engine: what answers its queries where nothing else is asked for.
        engine_of: the benchmark whose engine settings are used, itself if empty; `engine_scenarios` maps to its
            scenarios where they differ.
        sampling_of: what a test samples otherwise.
        obstacle: why its results can never be submitted; empty if they can.
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
    def _explained(self) -> Self:
        """A tree apart from results says why it is."""
        if self.tree_suffix and not self.obstacle:
            raise ValueError("tree_suffix without obstacle")
        return self

    @property
    def settings(self) -> str:
        """The folder of models/ that says how its engine is run."""
        return self.engine_of or self.name

    def sampling_for(self, test: str) -> Sampling:
        """How tokens are chosen in `test`."""
        return self.sampling.changed(self.sampling_of.get(test, {}))


def benchmark_names(workspace: Workspace) -> list[str]:
    """All benchmarks that have a file."""
    return sorted(f.parent.name for f in workspace.benchmarks.glob("*/benchmark.yaml"))


def _facts(file: Path) -> dict[str, Any]:
    """What a benchmark file says; on top of the benchmark that it `extends`, key by key."""
    own: dict[str, Any] = read_yaml(file)
    base = own.pop("extends", None)
    return _laid_over(_facts(file.parent.with_name(base) / file.name), own) if base else own


def _laid_over(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    both = {key: _laid_over(base[key], value) for key, value in own.items() if isinstance(value, dict) and key in base}
    return base | own | both


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
        return Benchmark.model_validate(_facts(file))
    except ValidationError as error:
        raise ConfigError("a benchmark file is wrong", where=str(file), found=str(error)) from error
