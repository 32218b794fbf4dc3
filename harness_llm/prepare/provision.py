"""Download and quantize the missing parts of a published benchmark."""

from collections.abc import Iterator

from harness_llm.config.assets import Report
from harness_llm.config.benchmark import Download
from harness_llm.prepare.downloads.download import download
from harness_llm.prepare.published import CALIBRATION, DRAFT, LIVECODEBENCH, PublishedPreparation
from harness_llm.prepare.quantize.quantize import quantize
from harness_llm.prepare.quantize.served import require_served_format


def provide(preparation: PublishedPreparation, gpu: str, report: Report) -> None:
    """Download missing parts, and quantize for `gpu` if the served checkpoint is missing or incomplete.

    Existing files are used, whatever their origin. Parts without a download stay missing.

    Raises:
        HarnessError: from `download`, `quantize` and `require_served_format`.
    """
    benchmark = preparation.benchmark
    if not preparation.needs_quantization():
        require_served_format(preparation, gpu)
    if parts := missing_parts(preparation):
        download(benchmark.name, parts, report)
    if preparation.needs_quantization():
        quantize(benchmark.name, "", gpu, report, preparation.workspace)


def missing_downloads(preparation: PublishedPreparation) -> list[Download]:
    """Return the downloads of the missing parts."""
    parts = missing_parts(preparation)
    return [download for download in preparation.benchmark.downloads if download.part in parts]


def missing_parts(preparation: PublishedPreparation) -> list[str]:
    """Return the parts of the benchmark's downloads that are missing."""
    published = {download.part for download in preparation.benchmark.downloads}
    return [part for part in _missing(preparation) if part in published]


def _missing(preparation: PublishedPreparation) -> Iterator[str]:
    files = preparation.files
    if not all(file.is_file() for name, file in files.items() if name != CALIBRATION):
        yield "dataset"
    if not files[CALIBRATION].is_file():
        yield "calibration"
    if not preparation.has_livecodebench():
        yield LIVECODEBENCH
    if not (preparation.has_checkpoint() or preparation.has_original()):
        yield "model"
    if not preparation.has_draft():
        yield DRAFT
