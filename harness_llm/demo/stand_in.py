"""Stand-ins: a published benchmark with the demo's checkpoint and made-up data, to try everything else of it with.

Names, file formats, prompt shape, metrics, limits and tests are the benchmark's own.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from harness_llm.assets import Assets, Report, Stage
from harness_llm.benchmarks import Benchmark, SampleSet, load_benchmark
from harness_llm.demo.assets import CALIBRATION_SAMPLES, DemoPreparation
from harness_llm.demo.corpus import Split, samples
from harness_llm.demo.dataset import SEEDS
from harness_llm.published import CALIBRATION, PublishedPreparation
from harness_llm.workspace import Workspace

DEMO = "demo"
LONGEST_PROMPT = 200  # token ids; the demo's model has 256 places
LONGEST_ANSWER = 24
PLAIN = "{}"
SHAPES = {
    "openorca": "[INST] {} [/INST]",
    "mixtral": "[INST] {} [/INST]",
    "cnn_dailymail": "Summarize the following news article.\n\nArticle:\n{}\n\nSummary:",
}
"""Prompts by data source, as the reference implementations shape them; what is not here is the bare question."""

_DEMO = "its model is the demo's, and its data set is made up"
_REHEARSED = "its answers are those of the replay engine, which computes nothing, and its data set is made up"

# What a made-up answer cannot be put through: no program to execute, no grader of the reference.
NEEDS_MORE = ("mbxp", "deepseek-r1", "gpt-oss-120b")


def stand_in(benchmark: Benchmark, demo: Benchmark, *, rehearsed: bool = False) -> Benchmark:
    """Return the stand-in of `benchmark`: the same rules, answered by the demo's checkpoint; never submittable.

    Args:
        rehearsed: whether the replay engine answers: then engine settings and sampling stay the benchmark's own, as no
            model computes.
    """
    folder = f"stand-in/{benchmark.name}"
    dataset, accuracy = benchmark.dataset, benchmark.accuracy

    def moved(file: str) -> str:
        return f"{folder}/{Path(file).name}"

    sets = {name: SampleSet(file=moved(s.file), samples=s.samples) for name, s in dataset.sets.items()}
    scoring = {kind: "exact" if method in NEEDS_MORE else method for kind, method in accuracy.scoring.items()}
    own = benchmark if rehearsed else _answered_by(demo, benchmark)
    return own.model_copy(
        update={
            "title": f"{benchmark.title}: a stand-in, answered by the {'replay engine' if rehearsed else 'demo model'}",
            "preparer": "stand-in",
            "divisions": ("open",),
            "tree_suffix": "-stand-in",
            "obstacle": _REHEARSED if rehearsed else _DEMO,
            "dataset": dataset.model_copy(
                update={"sets": sets, "calibration": moved(dataset.calibration), "longest_prompt": LONGEST_PROMPT}
            ),
            "checkpoint": demo.checkpoint,
            "accuracy": accuracy.model_copy(update={"scoring": scoring}),
            "measurements": demo.measurements,
        }
    )


def _answered_by(demo: Benchmark, benchmark: Benchmark) -> Benchmark:
    """`benchmark` with the engine settings and the sampling of the demo."""
    return benchmark.model_copy(
        update={
            "engine": demo.engine,
            "engine_of": demo.name,
            "engine_scenarios": {},
            "sampling": demo.sampling.changed(_lengths(benchmark)),
            "sampling_of": {},
        }
    )


def _lengths(benchmark: Benchmark) -> dict[str, int]:
    """What the demo's model says to prompts of another shape seldom ends by itself."""
    least = benchmark.sampling.min_tokens
    return {"min_tokens": least, "max_tokens": max(LONGEST_ANSWER, least)}


class Row(NamedTuple):
    """One made-up sample."""

    prompt: str
    ids: list[int]
    answer: str
    kind: str
    id: str


def _pickle(**columns: str) -> Callable[[Path, Sequence[Row]], None]:
    """Writes the rows as a pickled DataFrame with these columns."""

    def write(file: Path, rows: Sequence[Row]) -> None:
        _frame(columns, rows).to_pickle(file, compression=None)

    return write


def _frame(columns: Mapping[str, str], rows: Sequence[Row]) -> Any:
    import pandas as pd  # noqa: PLC0415 - half a second

    return pd.DataFrame({column: [getattr(row, field) for row in rows] for column, field in columns.items()})


def _write_json(file: Path, rows: Sequence[Row]) -> None:
    file.write_text(json.dumps([{"input": r.prompt, "tok_input": r.ids, "output": r.answer} for r in rows]))


def _write_parquet(file: Path, rows: Sequence[Row]) -> None:
    _frame({"input": "prompt", "tok_input": "ids", "ground_truth": "answer", "dataset": "kind"}, rows).to_parquet(file)


WRITERS: dict[str, Callable[[Path, Sequence[Row]], None]] = {
    "openorca": _pickle(input="prompt", tok_input="ids", output="answer"),
    "cnn_dailymail": _write_json,
    "llama3.1-405b": _pickle(input="prompt", tok_input="ids", gt_output="answer", metric="kind"),
    "mixtral": _pickle(id="id", input="prompt", tok_input="ids", gt_output="answer", dataset="kind"),
    "deepseek-r1": _pickle(text_input="prompt", tok_input="ids", ground_truth="answer", dataset="kind"),
    "gpt-oss-120b": _write_parquet,
}
"""Source files by data source, in the published format."""


@dataclass(frozen=True)
class StandInPreparation:
    """The demo's checkpoint, and files in the published formats, which are read as the published ones are."""

    benchmark: Benchmark
    workspace: Workspace

    @property
    def assets(self) -> Assets:
        """Where everything lands."""
        return self._published.assets

    @property
    def _published(self) -> PublishedPreparation:
        return PublishedPreparation(self.benchmark, self.workspace)

    @property
    def _demo(self) -> DemoPreparation:
        return DemoPreparation(load_benchmark(DEMO, self.workspace), self.workspace, CALIBRATION_SAMPLES)

    def stages(self) -> list[Stage]:
        """The demo's stages but its reference scores, then the files."""
        demo = [stage for stage in self._demo.stages() if stage.name != "reference"]
        counts = {name: samples.samples for name, samples in self.benchmark.dataset.sets.items()}
        files = self._published.files.items()
        made = [self._file(name, file, counts.get(name, CALIBRATION_SAMPLES)) for name, file in files]
        return [*demo, *made, *self._published.splitter()]

    def _file(self, name: str, file: Path, count: int) -> Stage:
        def make(report: Report) -> None:
            report(f"stand-in: {count} samples for {name}", None)
            file.parent.mkdir(parents=True, exist_ok=True)
            WRITERS[self.benchmark.dataset.source](file, self._rows(name, count))
            self._published.convert(file, report)

        return Stage(f"data set: {name}", "data set", lambda: self._published.is_converted(file), make)

    def _rows(self, name: str, count: int) -> list[Row]:
        split = Split.CALIBRATION if name == CALIBRATION else Split.EVALUATION
        shape = SHAPES.get(self.benchmark.dataset.source, PLAIN)
        kinds = [*self.benchmark.accuracy.scoring]
        chosen = samples(split, count, SEEDS[split])
        prompts = [shape.format(sample.prompt) for sample in chosen]
        encoded = Tokenizer.from_file(str(self._demo.tokenizer)).encode_batch(prompts)
        return [
            Row(prompt, encoding.ids, sample.answer, kinds[i % len(kinds)], f"python_{i}")
            for i, (prompt, encoding, sample) in enumerate(zip(prompts, encoded, chosen, strict=True))
        ]
