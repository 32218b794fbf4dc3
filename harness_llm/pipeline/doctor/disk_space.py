"""Check of free disk space for everything that the benchmarks of one command write before the first run."""

import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.filesize import decimal

from harness_llm.config.request import Request
from harness_llm.pipeline.doctor.check_result import CheckResult, failed, passed
from harness_llm.prepare.downloads.fetch import FREE_SPACE

GB = 10**9
_TOKEN_BYTES = 8  # hexadecimal digits of 4 bytes in mlperf_log_accuracy.json
_COPIES = 2
IMAGES_VARIABLE = "HARNESS_LLM_IMAGE_SPACE"
"""Space of the container images to be built, `bytes:folder`; set for the checks of the host."""


@dataclass(frozen=True)
class SpaceNeed:
    """Files to be written into a folder; equal needs of two benchmarks are the same files.

    Attributes:
        content: source of the files.
        size: bytes of all files.
        resumed: whether existing files of the folder are kept and count towards `size`.
    """

    folder: Path
    content: str
    size: float
    resumed: bool = True


def log_space(request: Request) -> list[SpaceNeed]:
    """Return the logs of the runs, which consist of answers above all, and their copies in tree and archive."""
    tokens = request.samples("accuracy") * request.rules.output_tokens * len(request.options.measured)
    content = f"runs of {request.benchmark.name}"
    return [SpaceNeed(request.workspace.logs, content, tokens * _TOKEN_BYTES * _COPIES, resumed=False)]


def required_bytes(needs: Iterable[SpaceNeed]) -> dict[Path, float]:
    """Return the bytes still to be written, by folder: sizes minus all files already in the folder."""
    totals: dict[Path, float] = defaultdict(float)
    resumed: set[Path] = set()
    for need in dict.fromkeys(needs):
        totals[need.folder] += need.size
        if need.resumed:
            resumed.add(need.folder)
    return {folder: max(size - (_present(folder) if folder in resumed else 0), 0) for folder, size in totals.items()}


def _present(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def check_space(required: Mapping[Path, float]) -> Iterator[CheckResult]:
    """Check the free space of each disk for `required`, bytes by folder that need not exist, and container images."""
    disks: dict[int, tuple[Path, float]] = {}
    images = _image_space()
    for folder, needed in (*required.items(), *((folder, 0.0) for folder in images)):
        existing = next(path for path in (folder, *folder.parents) if os.path.exists(path))  # noqa: PTH110 - False without permission
        device = existing.stat().st_dev
        before = disks.get(device, (existing, 0.0))
        disks[device] = (before[0], before[1] + needed)
    of_images = {folder.stat().st_dev: size for folder, size in images.items()}
    for device, (existing, needed) in disks.items():
        yield _check_disk(existing, needed, of_images.get(device, 0))


def _image_space() -> dict[Path, float]:
    """Return the folder and the bytes of IMAGES_VARIABLE."""
    size, _, folder = os.environ.get(IMAGES_VARIABLE, "").partition(":")
    return {Path(folder): float(size)} if folder else {}


def _check_disk(existing: Path, needed: float, images: float) -> CheckResult:
    free, total = shutil.disk_usage(existing).free, needed + images
    found, expected = f"{decimal(free)} free", decimal(round(total))
    hint = FREE_SPACE
    if images:
        expected += f" (container images: {decimal(round(images))})"
        hint += "; docker system df shows the space of images, docker builder prune and docker image prune free it"
    if free >= total:
        return passed("Disk", f"{found} at {existing}, {expected} needed")
    return failed("Disk", found, where=str(existing), expected=expected, hint=hint)
