"""Stand-in: a published benchmark with the demo's checkpoint and synthetic data, to test all its other parts.

Names, file formats, prompt template, metrics, limits and tests are those of the benchmark.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from harness_llm.config.assets import Assets, Report, Stage
from harness_llm.config.benchmark import Benchmark, load_benchmark
from harness_llm.config.stand_in import DEMO
from harness_llm.paths import Workspace
from harness_llm.prepare.demo.corpus import Split, samples
from harness_llm.prepare.demo.stages import CALIBRATION_SAMPLES, DemoPreparation
from harness_llm.prepare.demo.tokenized import SEEDS
from harness_llm.prepare.published import CALIBRATION, PublishedPreparation

PLAIN = "{}"
SHAPES = {
    "openorca": "[INST] {} [/INST]",
    "mixtral": "[INST] {} [/INST]",
    "cnn_dailymail": "Summarize the following news article.\n\nArticle:\n{}\n\nSummary:",
}
"""Prompt templates of the reference implementations, by data source; default PLAIN."""


class Row(NamedTuple):
    """One synthetic sample."""

    prompt: str
    ids: list[int]
    answer: str
    kind: str
    id: str


def _pickle(**columns: str) -> Callable[[Path, Sequence[Row]], None]:
    """Return a writer of a pickled DataFrame with these columns."""

    def write(file: Path, rows: Sequence[Row]) -> None:
        _frame(columns, rows).to_pickle(file, compression=None)

    return write


def _frame(columns: Mapping[str, str], rows: Sequence[Row]) -> Any:
    import pandas as pd  # noqa: PLC0415 - 0.5 s

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
"""Writers of source files in the published format, by data source."""


@dataclass(frozen=True)
class StandInPreparation:
    """Preparation of a stand-in: the demo's checkpoint, and source files in the published formats."""

    benchmark: Benchmark
    workspace: Workspace

    @property
    def assets(self) -> Assets:
        """Paths of the results."""
        return self._published.assets

    @property
    def _published(self) -> PublishedPreparation:
        return PublishedPreparation(self.benchmark, self.workspace)

    @property
    def _demo(self) -> DemoPreparation:
        return DemoPreparation(load_benchmark(DEMO, self.workspace), self.workspace, CALIBRATION_SAMPLES)

    def stages(self) -> list[Stage]:
        """The demo's stages without reference scores, then the source files."""
        demo = [stage for stage in self._demo.stages() if stage.name != "reference"]
        counts = {name: samples.samples for name, samples in self.benchmark.dataset.sets.items()}
        files = self._published.files.items()
        made = [self._file(name, file, counts.get(name, CALIBRATION_SAMPLES)) for name, file in files]
        return [*demo, *made]

    def _file(self, name: str, file: Path, count: int) -> Stage:
        def make(report: Report) -> None:
            report(f"stand-in: {count} samples for {name}", None)
            file.parent.mkdir(parents=True, exist_ok=True)
            WRITERS[self.benchmark.dataset.source](file, self._rows(name, count))
            self._published.convert(file, report)

        return Stage(f"data set: {name}", "data set", lambda: self._published.is_converted(file), make, file.parent)

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
