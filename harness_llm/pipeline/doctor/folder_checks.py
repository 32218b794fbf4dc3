"""Check that the command can write its folders."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from harness_llm.config.assets import unfinished
from harness_llm.config.request import Request
from harness_llm.paths import DATA_VARIABLE, MODELS_VARIABLE
from harness_llm.pipeline.doctor.asset_checks import space_needs
from harness_llm.pipeline.doctor.check_result import CheckResult, from_error, passed
from harness_llm.pipeline.doctor.purpose import Purpose
from harness_llm.pipeline.doctor.software_checks import scores_answers
from harness_llm.pipeline.doctor.vllm_build import computes_here
from harness_llm.prepare.preparation import preparation_of
from harness_llm.replicas.local import engine_caches
from harness_llm.write_access import Place, access_errors

_NAME = "Folders"


def check_folders(places: Iterable[Place]) -> Iterator[CheckResult]:
    """Check write access to all `places`."""
    wanted = list(places)
    found = [from_error(_NAME, error) for error in access_errors(wanted)]
    yield from found or ([passed(_NAME, "all can be written")] if wanted else [])


def written_places(request: Request, purpose: Purpose) -> list[Place]:
    """Return the folders that the command writes: of outputs, and of missing parts of model and data."""
    workspace = request.workspace
    folders = [workspace.build, workspace.cache]
    if purpose is not Purpose.PREPARE:
        folders += [workspace.logs, *_of_engines(request), *_of_scoring(request)]
    if purpose is Purpose.TUNE:
        folders.append(workspace.tuning)
    if purpose is Purpose.SUBMIT:
        folders.append(workspace.submission)
    return [*map(Place, folders), *_prepared(request)]


def _of_engines(request: Request) -> list[Path]:
    local = any(computes_here(request.options.engine, plan.config) for plan in request.scenarios)
    return [*engine_caches(request.workspace.cache).values()] if local else []


def _of_scoring(request: Request) -> list[Path]:
    return [request.workspace.scoring, request.workspace.official] if scores_answers(request) else []


def _prepared(request: Request) -> Iterator[Place]:
    """Yield the folders that the preparation writes; complete models and data may be on a read-only disk."""
    workspace = request.workspace
    preparation = preparation_of(request.benchmark, workspace, request.samples("accuracy"))
    stages = unfinished(preparation)
    if stages:
        yield Place(workspace.stage_logs)
    needs = [need.folder for need in space_needs(request)]
    above = {workspace.models: MODELS_VARIABLE, workspace.data: DATA_VARIABLE}
    for folder in [*needs, *(stage.folder for stage in stages if stage.folder)]:
        root = next((root for root in above if folder.is_relative_to(root)), folder)
        yield Place(folder if root.exists() else root, above.get(root, ""))
