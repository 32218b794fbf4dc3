"""Checks of model and data: missing parts, the token for gated downloads, free disk space."""

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
_QUANTIZED = 0.55  # size relative to the original: 1 byte instead of 2, plus scales and unquantized layers


def check_assets(request: Request) -> Iterator[CheckResult]:
    """Check downloads and quantization of a published benchmark; other benchmarks create model and data themselves."""
    preparation = preparation_of(request.benchmark, request.workspace, request.samples("accuracy"))
    if not isinstance(preparation, PublishedPreparation):
        return
    parts = missing_parts(preparation)
    to_prepare = [*parts, *(["checkpoint"] if preparation.needs_quantization() else [])]
    name = "Model and data"
    if not to_prepare:
        yield passed(name, str(preparation.assets.checkpoint))
    else:
        missing = [download for download in request.benchmark.downloads if download.part in parts]
        yield passed(name, f"to prepare: {', '.join(dict.fromkeys(to_prepare))}")
        yield from _licences(missing)
        yield from check_space(_required_bytes(preparation, missing))


def _licences(missing: Sequence[Download]) -> Iterator[CheckResult]:
    """Check that a token is set; the download checks whether its owner has accepted the licence."""
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
            "missing, and the repository is gated",
            where=page,
            expected="a token whose owner accepted the licence",
            hint=f"accept the licence at {page}, then export HUGGINGFACE_ACCESS_TOKEN=hf_...",
        )


def _required_bytes(preparation: PublishedPreparation, missing: Sequence[Download]) -> dict[Path, float]:
    """Bytes still to be written, by folder; files of an interrupted download are subtracted."""
    models, data = preparation.workspace.models, preparation.workspace.data
    required: dict[Path, float] = defaultdict(float)
    for download in missing:
        folder = (models if download.of_models else data) / download.folder
        present = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        required[folder] += max(download.gb * _GB - present, 0)
    checkpoint = preparation.benchmark.checkpoint
    if preparation.needs_quantization():
        original = sum(d.gb for d in preparation.benchmark.downloads if d.part == "model")
        required[models / checkpoint.quantized] += original * _GB * _QUANTIZED
    return required


def check_space(required: dict[Path, float]) -> Iterator[CheckResult]:
    """Check the free space of each disk; `required` are bytes by folder, which need not exist."""
    disks: dict[int, tuple[Path, float]] = {}
    for folder, needed in required.items():
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
            hint = "free disk space, or set LAB_MODEL (models) and LAB_DATASET (data sets) to folders on another disk"
            yield failed("Disk", found, where=str(existing), expected=expected, hint=hint)
