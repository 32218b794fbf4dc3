"""Preparation of a published benchmark: require checkpoint and files, convert data sets to token stores."""

import sys
from dataclasses import dataclass
from pathlib import Path

from harness_llm.config.assets import Assets, Report, Stage
from harness_llm.config.benchmark import Benchmark, Download
from harness_llm.config.checkpoint import WEIGHTS, is_complete
from harness_llm.config.commands import command
from harness_llm.errors import EnvironmentMissing
from harness_llm.evaluate.sentence_splitter import fetch_splitter, has_splitter, splitter_folder
from harness_llm.paths import DATA_VARIABLE, MODELS_VARIABLE, Workspace
from harness_llm.prepare.datasets.convert import convert, is_converted, store_path
from harness_llm.prepare.downloads.manifest import Manifest

CALIBRATION = "calibration"
LIVECODEBENCH = "livecodebench"
DRAFT = "draft"
_CHECKPOINT_FILES = f"config.json and all weights ({' or '.join(WEIGHTS)})"


@dataclass(frozen=True)
class PublishedPreparation:
    """Preparation without downloads: the error of a missing part names the download command."""

    benchmark: Benchmark
    workspace: Workspace

    @property
    def assets(self) -> Assets:
        """Paths of checkpoints, source files and stores."""
        models, checkpoint = self.workspace.models, self.benchmark.checkpoint
        return Assets(
            checkpoint=models / checkpoint.quantized,
            original=models / checkpoint.original,
            sources=self.files,
            stores={name: store_path(file) for name, file in self.files.items() if name != CALIBRATION},
            calibration=store_path(self.files[CALIBRATION]),
            draft=models / checkpoint.draft if checkpoint.draft else None,
            livecodebench=next((self.workspace.data / download.folder for download in self._livecodebench), None),
        )

    @property
    def files(self) -> dict[str, Path]:
        """Source files by sample set, including the calibration set."""
        dataset, data = self.benchmark.dataset, self.workspace.data
        return {name: data / files.file for name, files in dataset.sets.items()} | {
            CALIBRATION: data / dataset.calibration
        }

    def stages(self) -> list[Stage]:
        """All stages in order of dependency."""
        return [
            Stage("checkpoint", None, self.has_checkpoint, self._refuse_checkpoint),
            Stage("draft head", None, self.has_draft, self._refuse_draft),
            *(self._conversion(name, file) for name, file in self.files.items()),
            *self._splitter(),
            *(
                Stage("LiveCodeBench", None, self.has_livecodebench, self._refuse_livecodebench)
                for _ in self._livecodebench
            ),
        ]

    def _splitter(self) -> list[Stage]:
        """The stage that fetches the sentence splitter of ROUGE-Lsum, if the benchmark's scoring needs it."""
        folder = splitter_folder(self.workspace)
        stage = Stage("sentence splitter", None, lambda: has_splitter(folder), lambda _: fetch_splitter(folder), folder)
        return [stage] if self.benchmark.accuracy.sentence_split else []

    @property
    def _livecodebench(self) -> list[Download]:
        return [download for download in self.benchmark.downloads if download.part == LIVECODEBENCH]

    def has_livecodebench(self) -> bool:
        """Return whether LiveCodeBench's files exist; True for benchmarks that need none."""
        files = [Path(download.folder, name) for download in self._livecodebench for name in download.files]
        return all((self.workspace.data / file).is_file() for file in files)

    def _refuse_livecodebench(self, _: Report) -> None:
        raise EnvironmentMissing(
            f"missing LiveCodeBench data set, required to score {self.benchmark.name}",
            where=str(self.assets.livecodebench),
            expected=", ".join(name for download in self._livecodebench for name in download.files),
            hint=command("download", model=self.benchmark.name, part=LIVECODEBENCH),
        )

    def has_checkpoint(self) -> bool:
        """Return whether the served checkpoint is complete."""
        return _is_checkpoint(self.assets.checkpoint)

    def has_original(self) -> bool:
        """Return whether the checkpoint before quantization is complete."""
        return _is_checkpoint(self.assets.original)

    def needs_quantization(self) -> bool:
        """Return whether the served checkpoint has to be made from the original."""
        checkpoint = self.benchmark.checkpoint
        return checkpoint.original != checkpoint.quantized and not self.has_checkpoint()

    def has_draft(self) -> bool:
        """Return whether the draft head is complete; True for benchmarks that need none."""
        draft = self.assets.draft
        return draft is None or _is_checkpoint(draft)

    def _refuse_draft(self, _: Report) -> None:
        raise EnvironmentMissing(
            f"missing draft head for speculative decoding of {self.benchmark.name}",
            where=str(self.assets.draft),
            expected=_CHECKPOINT_FILES,
            hint=command("download", model=self.benchmark.name, part=DRAFT),
        )

    def _refuse_checkpoint(self, _: Report) -> None:
        benchmark = self.benchmark
        as_published = benchmark.checkpoint.original == benchmark.checkpoint.quantized
        script = benchmark.name.replace("-", "_").replace(".", "_")
        raise EnvironmentMissing(
            f"missing checkpoint of {benchmark.name}",
            where=str(self.assets.checkpoint),
            expected=f"{_CHECKPOINT_FILES}, at checkpoint.quantized of "
            f"models/{benchmark.name}/benchmark.yaml below {self.workspace.models} ({MODELS_VARIABLE})",
            hint=command("download", model=benchmark.name, part="model")
            + ("" if as_published else f", then bash setup/quantize_{script}.sh"),
        )

    def _conversion(self, name: str, file: Path) -> Stage:
        def make(report: Report) -> None:
            if not file.is_file():
                raise self._missing_file(name, file)
            self.convert(file, report)

        return Stage(f"data set: {name}", None, lambda: self.is_converted(file), make, file.parent)

    def is_converted(self, file: Path) -> bool:
        """Return whether the store of `file` exists and is current."""
        dataset = self.benchmark.dataset
        return is_converted(dataset.source, file, self.assets.tokenizer, dataset.longest_prompt)

    def convert(self, file: Path, report: Report) -> None:
        """Convert `file` to a token store."""
        dataset = self.benchmark.dataset
        report(f"converting {file.name}", None)
        truncate = file == self.files[CALIBRATION]
        convert(dataset.source, file, self.assets.tokenizer, dataset.longest_prompt, truncate=truncate)

    def _missing_file(self, name: str, file: Path) -> EnvironmentMissing:
        benchmark, calibration = self.benchmark, name == CALIBRATION
        then = f", then {Path(sys.executable).parent}/{benchmark.dataset.made_by}" if benchmark.dataset.made_by else ""
        setting = "dataset.calibration" if calibration else f"dataset.sets.{name}.file"
        return EnvironmentMissing(
            f"missing data set of {benchmark.name}",
            where=str(file),
            expected=f"the file of {setting} in models/{benchmark.name}/benchmark.yaml, "
            f"below {self.workspace.data} ({DATA_VARIABLE})",
            hint=command("download", model=benchmark.name, part=CALIBRATION if calibration else "dataset") + then,
        )


def _is_checkpoint(folder: Path) -> bool:
    return is_complete(folder) and not Manifest(folder).is_interrupted
