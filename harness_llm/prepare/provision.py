"""What a published benchmark still lacks, brought in the order in which it is needed: downloads, then quantization."""

from collections.abc import Iterator

from harness_llm.config.assets import Report
from harness_llm.prepare.downloads.download import download
from harness_llm.prepare.published import CALIBRATION, DRAFT, LIVECODEBENCH, PublishedPreparation
from harness_llm.prepare.quantize.quantize import quantize


def provide(preparation: PublishedPreparation, gpu: str, report: Report) -> None:
    """Download the parts that are not there, and quantize for `gpu` where no checkpoint to be served is there.

    What stands in its place already is used, whoever put it there. What cannot be downloaded stays missing.

    Raises:
        HarnessError: as `download` and `quantize`.
    """
    benchmark = preparation.benchmark
    if parts := missing_parts(preparation):
        download(benchmark.name, parts, report)
    if not preparation.has_checkpoint():
        quantize(benchmark.name, "", gpu, report, preparation.workspace)


def missing_parts(preparation: PublishedPreparation) -> list[str]:
    """The parts of the benchmark's downloads that are not there."""
    published = {wanted.part for wanted in preparation.benchmark.downloads}
    return [part for part in _lacking(preparation) if part in published]


def _lacking(preparation: PublishedPreparation) -> Iterator[str]:
    files, original = preparation.files, preparation.assets.original
    if not all(file.is_file() for name, file in files.items() if name != CALIBRATION):
        yield "dataset"
    if not files[CALIBRATION].is_file():
        yield "calibration"
    if not preparation.has_livecodebench():
        yield LIVECODEBENCH
    if not (preparation.has_checkpoint() or (original / "config.json").is_file()):
        yield "model"
    if not preparation.has_draft():
        yield DRAFT
