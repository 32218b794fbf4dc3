"""Only the missing parts of a published benchmark are downloaded and quantized."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from asked import options
from rich.console import Console

from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.plan import resolve
from harness_llm.errors import EnvironmentMissing
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.submit import Pipeline
from harness_llm.prepare import provision
from harness_llm.prepare.downloads.manifest import Manifest
from harness_llm.prepare.downloads.remote_file import Checksum, RemoteFile
from harness_llm.prepare.published import CALIBRATION, PublishedPreparation

MODEL = "llama2-70b"


@pytest.fixture
def preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishedPreparation:
    monkeypatch.setenv("LAB_MODEL", str(tmp_path / "models"))
    monkeypatch.setenv("LAB_DATASET", str(tmp_path / "data"))
    return PublishedPreparation(load_benchmark(MODEL, Workspace(CHECKOUT)), Workspace(CHECKOUT))


@pytest.fixture
def brought(preparation: PublishedPreparation, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What is asked for, of doors that have tests of their own."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(provision, "download", lambda model, parts, _: asked.append(("download", model, *parts)))
    monkeypatch.setattr(provision, "quantize", lambda model, recipe, gpu, *_: asked.append(("quantize", model, gpu)))
    return asked


def put(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")


def data(preparation: PublishedPreparation) -> list[Path]:
    return list(preparation.files.values())


@pytest.mark.parametrize(("model", "files"), [("deepseek-r1", 2), ("gpt-oss-120b", 7)])
def test_livecodebench_data_is_downloaded(
    model: str, files: int, tmp_path: Path, preparation: PublishedPreparation, brought: list[tuple[str, ...]]
) -> None:
    own = PublishedPreparation(load_benchmark(model, Workspace(CHECKOUT)), Workspace(CHECKOUT))
    wanted = next(d for d in own.benchmark.downloads if d.part == "livecodebench").files
    assert len(wanted) == files
    put(*data(own), own.assets.checkpoint / "config.json", own.assets.checkpoint / "model.safetensors")
    assert own.assets.livecodebench == tmp_path / "data/livecodebench"
    put(*(own.assets.livecodebench / name for name in wanted[1:]))
    provision.provide(own, "mi300x", lambda *_: None)
    put(own.assets.livecodebench / wanted[0])
    provision.provide(own, "mi300x", lambda *_: None)
    assert brought == [("download", model, "livecodebench")]


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (lambda p: [], [("download", MODEL, "dataset", "calibration", "model"), ("quantize", MODEL, "mi300x")]),
        (data, [("download", MODEL, "model"), ("quantize", MODEL, "mi300x")]),
        (
            lambda p: [
                p.files[CALIBRATION],
                p.assets.original / "config.json",
                p.assets.original / "model.safetensors",
            ],
            [("download", MODEL, "dataset"), ("quantize", MODEL, "mi300x")],
        ),
        (
            lambda p: [*data(p), p.assets.original / "config.json"],
            [("download", MODEL, "model"), ("quantize", MODEL, "mi300x")],
        ),
        (
            lambda p: [*data(p), p.assets.checkpoint / "config.json", p.assets.checkpoint / "model.safetensors"],
            [],
        ),
    ],
)
def test_missing_parts_are_downloaded_in_order(
    there: Callable[[PublishedPreparation], list[Path]],
    expected: list[tuple[str, ...]],
    preparation: PublishedPreparation,
    brought: list[tuple[str, ...]],
) -> None:
    put(*there(preparation))
    provision.provide(preparation, "mi300x", lambda *_: None)
    assert brought == expected


def test_checkpoint_in_a_format_that_the_gpu_lacks_is_refused_before_a_download(
    preparation: PublishedPreparation, brought: list[tuple[str, ...]]
) -> None:
    folder = preparation.assets.checkpoint
    put(folder / "config.json", folder / "model.safetensors")
    (folder / "quantization.json").write_text(json.dumps({"recipe": {"name": "mxfp4", "needs": "mxfp4"}}))
    with pytest.raises(EnvironmentMissing, match="mi300x does not support the number format") as caught:
        provision.provide(preparation, "mi300x", lambda *_: None)
    assert caught.value.hint.startswith(f"harness-llm quantize --model {MODEL} --gpu mi300x;")
    assert brought == []
    put(*data(preparation))
    provision.provide(preparation, "mi355x", lambda *_: None)
    assert brought == []


@pytest.mark.parametrize("shards", [0, 1, 162])
@pytest.mark.parametrize("indexed", [True, False])
def test_interrupted_download_of_a_model_is_continued(
    shards: int, indexed: bool, preparation: PublishedPreparation, brought: list[tuple[str, ...]]
) -> None:
    own = PublishedPreparation(load_benchmark("deepseek-r1", Workspace(CHECKOUT)), Workspace(CHECKOUT))
    folder = own.assets.checkpoint
    names = [f"model-{number:05}-of-000163.safetensors" for number in range(1, 164)]
    put(*data(own), *(own.workspace.data / "livecodebench" / f for f in ("code_generation_lite.py", "test.jsonl")))
    put(folder / "config.json", *(folder / name for name in names[:shards]))
    if indexed:
        index = {"weight_map": dict(zip(map(str, names), names, strict=True))}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert not own.has_checkpoint()
    provision.provide(own, "mi300x", lambda *_: None)
    assert brought == [("download", "deepseek-r1", "model")]
    put(*(folder / name for name in names))
    provision.provide(own, "mi300x", lambda *_: None)
    assert len(brought) == 1


def test_download_that_stopped_before_the_last_file_is_continued(preparation: PublishedPreparation) -> None:
    folder, tokenizer = preparation.assets.original, "tokenizer.json"
    put(folder / "config.json", folder / "model.safetensors")
    assert preparation.has_original()  # files of the user
    files = [RemoteFile(name, "", 2, Checksum("git", "")) for name in ("config.json", "model.safetensors", tokenizer)]
    for file in files[:2]:
        Manifest(folder).add(file)
    assert provision.missing_parts(preparation) == ["dataset", "calibration", "model"]
    put(folder / tokenizer)
    Manifest(folder).add(files[2])
    Manifest(folder).complete("x", [file.name for file in files])
    assert provision.missing_parts(preparation) == ["dataset", "calibration"]


@pytest.mark.parametrize("command", [Pipeline.submit, Pipeline.run, Pipeline.prepare])
def test_every_command_that_needs_assets_downloads_them(
    command: Callable[[Pipeline], object], preparation: PublishedPreparation, brought: list[tuple[str, ...]]
) -> None:
    requested = options(model=MODEL, gpu="mi300x", division="open", system_name="box", company="Acme")
    with pytest.raises(EnvironmentMissing):  # nothing was really brought
        command(Pipeline(resolve(requested, Workspace(CHECKOUT)), Panel(Console(stderr=True))))
    assert brought == [("download", MODEL, "dataset", "calibration", "model"), ("quantize", MODEL, "mi300x")]
