"""Checks of model and data: what is missing, tokens and disk space, before a download."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from asked import options
from machines import hide_tools
from rich.console import Console
from workspaces import make_workspace

from harness_llm.cli.submit_command import prepare
from harness_llm.config.benchmark import benchmark_names, load_benchmark
from harness_llm.config.request import load_request
from harness_llm.errors import EnvironmentMissing
from harness_llm.hardware import device_lock as devices
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.doctor import download_checks
from harness_llm.pipeline.doctor.check_result import CheckResult, Level
from harness_llm.pipeline.doctor.disk_space import SpaceNeed, check_space, required_bytes
from harness_llm.pipeline.doctor.doctor import combine_results
from harness_llm.pipeline.doctor.examination import examine
from harness_llm.pipeline.doctor.purpose import Part, Purpose
from harness_llm.pipeline.panel import Panel
from harness_llm.prepare import provision
from harness_llm.prepare.published import PublishedPreparation
from harness_llm.prepare.quantize.recipes import load_recipes

GB = 10**9


class Usage(NamedTuple):
    """As shutil.disk_usage returns it."""

    total: int
    used: int
    free: int


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A checkout without models and data, 500 GB of free space, and no token."""
    for name in ("LAB_MODEL", "LAB_DATASET", "MLPERF_SCRATCH_PATH", "HF_TOKEN", "HUGGINGFACE_ACCESS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(devices, "make_locks", lambda: tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 500 * GB))
    hide_tools(monkeypatch)
    monkeypatch.setattr(download_checks, "require_access", lambda *_, **__: None)  # see test_doctor_downloads.py
    return make_workspace(tmp_path)


def examined(
    purpose: Purpose = Purpose.PREPARE, model: str = "llama2-70b", part: Part = Part.ALL
) -> dict[str, CheckResult]:
    request = load_request(options(model=model, gpu="h200", division="open", system_name="box"), Workspace())
    return {result.name: result for result in combine_results([examine(request, purpose, part=part)])}


def test_gated_model_without_a_token_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    result = examined()["Hugging Face token"]
    assert (result.level, result.exit_code) == (Level.ERROR, 3)
    assert "export HUGGINGFACE_ACCESS_TOKEN=hf_..." in result.hint
    assert examined()["Downloads"].found == "accessible: dataset, calibration"
    monkeypatch.setenv("HUGGINGFACE_ACCESS_TOKEN", "hf_x")
    assert "Hugging Face token" not in examined()
    assert examined()["Downloads"].found == "accessible: dataset, calibration, model"
    monkeypatch.setenv("HUGGINGFACE_ACCESS_TOKEN", "hf_ü")
    assert examined()["Hugging Face token"].exit_code == 2


def test_public_model_needs_no_token() -> None:
    assert "Hugging Face token" not in examined(model="mixtral-8x7b")


def test_too_small_disk_for_missing_files_is_an_error(monkeypatch: pytest.MonkeyPatch, workspace: Workspace) -> None:
    assert examined()["Disk"].level is Level.OK
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 210 * GB))
    result = examined()["Disk"]
    assert (result.level, result.expected) == (Level.ERROR, "217.9 GB")  # 138, its FP8 checkpoint, two data sets
    quantized = workspace.models / "Llama-2-70b-chat-hf-fp8"
    quantized.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (quantized / name).write_text("{}")
    assert examined()["Disk"].level is Level.OK


def test_partial_download_counts_as_present(workspace: Workspace) -> None:
    folder = workspace.models / "Llama-2-70b-chat-hf"
    folder.mkdir(parents=True)
    with (folder / "model-1.safetensors").open("wb") as file:
        file.truncate(100 * GB)
    assert "117.9 GB needed" in examined()["Disk"].found


def test_each_disk_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 5 * GB))
    (here,) = check_space({tmp_path / "a": 3 * GB, tmp_path / "b/c": 3 * GB})
    assert (here.level, here.expected) == (Level.ERROR, "6.0 GB")
    found = list(check_space({tmp_path / "a": 3 * GB, Path("/proc/x"): 3 * GB}))
    assert [result.level for result in found] == [Level.OK, Level.OK]


def test_images_of_containers_need_space_on_their_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 5 * GB))
    monkeypatch.setenv("HARNESS_LLM_IMAGE_SPACE", f"{4 * GB}:{tmp_path}")
    here, other = check_space({tmp_path / "a": 3 * GB, Path("/proc/x"): 3 * GB})
    assert (here.level, here.expected) == (Level.ERROR, "7.0 GB (container images: 4.0 GB)")
    assert (other.level, other.found) == (Level.OK, "5.0 GB free at /proc, 3.0 GB needed")
    [alone] = check_space({})
    assert alone.found == f"5.0 GB free at {tmp_path}, 4.0 GB (container images: 4.0 GB) needed"
    monkeypatch.setenv("HARNESS_LLM_IMAGE_SPACE", f"{6 * GB}:{tmp_path}")
    assert "docker builder prune" in next(iter(check_space({}))).hint


def test_disk_space_is_summed_over_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [
        load_request(options(model=model, gpu="h200", division="open", system_name="box"), Workspace())
        for model in ("gptj", "mixtral-8x7b")
    ]
    examinations = [examine(request, Purpose.PREPARE) for request in requests]
    needed = [sum(need.size for need in examination.needs.space) for examination in examinations]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, int(max(needed)) + GB))
    for examination in examinations:
        assert [result.level for result in combine_results([examination])][-1] is Level.OK
    (disk,) = [result for result in combine_results(examinations) if result.name == "Disk"]
    assert (disk.level, disk.expected) == (Level.ERROR, f"{sum(needed) / GB:.1f} GB")


def test_shared_folder_is_counted_once(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_bytes(b"x" * 10)
    needs = [SpaceNeed(folder, "dataset", 30), SpaceNeed(folder, "calibration", 20)]
    assert required_bytes([*needs, *needs]) == {folder: 40}
    assert required_bytes([SpaceNeed(folder, "quantization", 30, resumed=False)]) == {folder: 30}


def put_quantized(workspace: Workspace, recipe: str) -> Path:
    """Data sets, and a checkpoint of llama2-70b that another machine quantized by `recipe`; empty: without a record."""
    benchmark = load_benchmark("llama2-70b", workspace)
    folder = workspace.models / benchmark.checkpoint.quantized
    record = {}
    if recipe:
        facts = load_recipes(benchmark, workspace).recipes[recipe].model_dump(exclude_defaults=True)
        record = {folder / "quantization.json": json.dumps({"recipe": facts, "files": {}})}
    weights = dict.fromkeys((folder / "config.json", folder / "model.safetensors"), "{}")
    data = dict.fromkeys(PublishedPreparation(benchmark, workspace).files.values(), "")
    for file, text in (weights | data | record).items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.mark.parametrize("part", [Part.ALL, Part.HOST])
def test_checkpoint_in_a_format_that_the_gpu_lacks_is_an_error(workspace: Workspace, part: Part) -> None:
    folder = put_quantized(workspace, "mxfp4")
    for model in ("llama2-70b", "llama2-70b-interactive"):
        result = examined(model=model, part=part)["Model and data"]
        assert (result.level, result.where) == (Level.ERROR, str(folder / "quantization.json"))
        assert result.observed == "recipe mxfp4, which needs mxfp4"
        assert result.hint.startswith(f"harness-llm quantize --model {model} --gpu h200;")


def test_checkpoint_of_another_recipe_is_a_warning(workspace: Workspace) -> None:
    put_quantized(workspace, "quark-fp8")
    result = examined()["Model and data"]
    assert (result.level, result.found) == (Level.WARNING, "quantized by recipe quark-fp8")
    assert result.expected == "fp8-static, the default of h200"
    assert result.hint.startswith("harness-llm quantize --model llama2-70b --gpu h200;")


@pytest.mark.parametrize("recipe", ["fp8-static", ""])
def test_checkpoint_of_the_default_recipe_or_of_the_user_is_accepted(workspace: Workspace, recipe: str) -> None:
    folder = put_quantized(workspace, recipe)
    result = examined()["Model and data"]
    assert (result.level, result.found) == (Level.OK, str(folder))


def test_recipe_is_checked_although_data_is_missing(workspace: Workspace) -> None:
    put_quantized(workspace, "nvfp4")
    shutil.rmtree(workspace.data)
    assert examined()["Model and data"].level is Level.ERROR


def test_page_of_a_gated_repository_is_that_of_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "https://mirror.example")
    assert examined()["Hugging Face token"].where == "https://mirror.example/meta-llama/Llama-2-70b-chat-hf"


def test_interrupted_download_needs_token_and_space(workspace: Workspace) -> None:
    folder = workspace.models / "Llama-2-70b-chat-hf"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    found = examined()
    assert found["Model and data"].found == "to prepare: dataset, calibration, model, checkpoint"
    assert found["Hugging Face token"].level is Level.ERROR
    assert "217.9 GB needed" in found["Disk"].found


@pytest.mark.parametrize("purpose", Purpose)
@pytest.mark.parametrize("part", [Part.ALL, Part.HOST])
def test_every_command_checks_what_it_will_download(purpose: Purpose, part: Part, workspace: Workspace) -> None:
    found = examined(purpose, part=part)
    assert found["Model and data"].found == "to prepare: dataset, calibration, model, checkpoint"
    assert found["Hugging Face token"].level is Level.ERROR


def test_demo_needs_no_download() -> None:
    assert not {"Model and data", "Disk"} & set(examined(model="demo"))


def test_prepare_checks_before_the_first_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provision, "download", lambda *_: pytest.fail("a download began"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, GB))
    with pytest.raises(EnvironmentMissing, match="2 checks failed") as caught:
        prepare(options(model="llama2-70b", gpu="h200"), Panel(Console(stderr=True)))
    assert "Hugging Face token" in caught.value.found
    assert "Disk" in caught.value.found


@pytest.mark.parametrize("name", benchmark_names(Workspace(CHECKOUT)))
def test_every_model_that_is_downloaded_has_a_size(name: str) -> None:
    models = [download for download in load_benchmark(name, Workspace(CHECKOUT)).downloads if download.part == "model"]
    assert all(download.gb > 10 for download in models)
    assert all(download.gated == download.repo.startswith("meta-llama/") for download in models)
