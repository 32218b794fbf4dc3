"""Checks of model and data: what is missing, the token for gated downloads, and free disk space."""

import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness_llm.config.benchmark import Download
from harness_llm.config.request import Request
from harness_llm.errors import HarnessError
from harness_llm.pipeline.doctor.check_result import CheckResult, failed, from_error, passed
from harness_llm.prepare.preparation import preparation_of
from harness_llm.prepare.provision import missing_parts
from harness_llm.prepare.published import PublishedPreparation

_GB = 10**9
_QUANTIZED = 0.55  # of the original's size: a byte for two, and scales, embeddings and heads that stay


def check_assets(request: Request) -> Iterator[CheckResult]:
    """Check what is to be downloaded and quantized for a published benchmark; others make their own model and data."""
    preparation = preparation_of(request.benchmark, request.workspace, request.samples("accuracy"))
    if not isinstance(preparation, PublishedPreparation):
        return
    parts = missing_parts(preparation)
    to_make = [*parts, *([] if preparation.has_checkpoint() else ["checkpoint"])]
    name = "Model and data"
    if not to_make:
        yield passed(name, str(preparation.assets.checkpoint))
    else:
        missing = [download for download in request.benchmark.downloads if download.part in parts]
        yield passed(name, f"to be made: {', '.join(dict.fromkeys(to_make))}")
        yield from _licences(missing)
        yield from check_space(_needs(preparation, missing))


def _licences(missing: Sequence[Download]) -> Iterator[CheckResult]:
    """A token is required here; whether its owner accepted the licence shows when the download begins."""
    name = "Hugging Face token"
    gated = [download.repo for download in missing if download.gated]
    if not gated:
        return
    from harness_llm.prepare.downloads.huggingface import find_token  # noqa: PLC0415 - loads huggingface_hub

    try:
        token = find_token()
    except HarnessError as error:
        yield from_error(name, error)
        return
    page = f"https://huggingface.co/{gated[0]}"
    if token:
        yield passed(name, f"set; its owner must have accepted the licence at {page}")
    else:
        yield failed(
            name,
            "none, and the repository is gated",
            where=page,
            expected="a token whose owner accepted the licence",
            hint=f"accept the licence at {page}, then export HUGGINGFACE_ACCESS_TOKEN=hf_...",
        )


def _needs(preparation: PublishedPreparation, missing: Sequence[Download]) -> dict[Path, float]:
    """Bytes that are still to be written, by folder; what a download that was cut has left counts."""
    models, data = preparation.workspace.models, preparation.workspace.data
    needs: dict[Path, float] = defaultdict(float)
    for download in missing:
        folder = (models if download.of_models else data) / download.folder
        there = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        needs[folder] += max(download.gb * _GB - there, 0)
    checkpoint = preparation.benchmark.checkpoint
    if not preparation.has_checkpoint() and checkpoint.quantized != checkpoint.original:
        original = sum(d.gb for d in preparation.benchmark.downloads if d.part == "model")
        needs[models / checkpoint.quantized] += original * _GB * _QUANTIZED
    return needs


def check_space(needs: dict[Path, float]) -> Iterator[CheckResult]:
    """Check the free space of each disk; `needs` are bytes by folder, whether it is there or not."""
    disks: dict[int, tuple[Path, float]] = {}
    for folder, needed in needs.items():
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        device = existing.stat().st_dev
        before = disks.get(device, (existing, 0.0))
        disks[device] = (before[0], before[1] + needed)
    for existing, needed in disks.values():
        free = shutil.disk_usage(existing).free
        found, expected = f"{free / _GB:.1f} GB free", f"{needed / _GB:.1f} GB"
        if free >= needed:
            yield passed("Disk", f"{found} at {existing}, {expected} needed")
        else:
            hint = "free some space, or let LAB_MODEL (models) and LAB_DATASET (data sets) name folders on another disk"
            yield failed("Disk", found, where=str(existing), expected=expected, hint=hint)
