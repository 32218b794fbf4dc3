"""Check of free disk space for everything that the benchmarks of one command write before the first run."""

import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness_llm.pipeline.doctor.check_result import CheckResult, failed, passed
from harness_llm.prepare.downloads.fetch import FREE_SPACE

GB = 10**9
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
    for folder, needed in required.items():
        existing = next(path for path in (folder, *folder.parents) if os.path.exists(path))  # noqa: PTH110 - False without permission
        device = existing.stat().st_dev
        before = disks.get(device, (existing, 0.0))
        disks[device] = (before[0], before[1] + needed)
    images = _image_space()
    for device, (existing, needed) in disks.items():
        yield _check_disk(existing, needed, images.get(device, 0))


def _image_space() -> dict[int, float]:
    """Return the bytes of IMAGES_VARIABLE by disk."""
    size, _, folder = os.environ.get(IMAGES_VARIABLE, "").partition(":")
    return {Path(folder).stat().st_dev: float(size)} if folder else {}


def _check_disk(existing: Path, needed: float, images: float) -> CheckResult:
    free, total = shutil.disk_usage(existing).free, needed + images
    found, expected = f"{free / GB:.1f} GB free", f"{total / GB:.1f} GB"
    if images:
        expected += f" (container images: {images / GB:.1f} GB)"
    if free >= total:
        return passed("Disk", f"{found} at {existing}, {expected} needed")
    return failed("Disk", found, where=str(existing), expected=expected, hint=FREE_SPACE)
