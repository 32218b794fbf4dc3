"""Assets of published benchmarks: expected files, errors where they are missing, stand-ins."""

from pathlib import Path

import pandas as pd
import pytest

from harness_llm.config.assets import missing, prepare
from harness_llm.config.benchmark import Benchmark, benchmark_names, load_benchmark
from harness_llm.config.stand_in import stand_in
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.prepare.demo.stages import DemoPreparation
from harness_llm.prepare.demo.stand_in import DEMO, WRITERS
from harness_llm.prepare.preparation import preparation_of
from harness_llm.prepare.published import PublishedPreparation
from harness_llm.protocol.token_store import open_store

CHECKED_OUT = Workspace(CHECKOUT)
PUBLISHED = [n for n in benchmark_names(CHECKED_OUT) if load_benchmark(n, CHECKED_OUT).preparer == "published"]


@pytest.fixture
def benchmark() -> Benchmark:
    return load_benchmark("llama2-70b", CHECKED_OUT)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("LAB_MODEL", str(tmp_path / "models"))
    monkeypatch.setenv("LAB_DATASET", str(tmp_path / "data"))
    return Workspace(tmp_path)


def put_checkpoint(benchmark: Benchmark, workspace: Workspace) -> None:
    folder = workspace.models / benchmark.checkpoint.quantized
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_text("{}")


def put_data(benchmark: Benchmark, workspace: Workspace) -> None:
    for file in PublishedPreparation(benchmark, workspace).files.values():
        file.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame({"tok_input": [[1, 2], [3]], "output": ["a", "b"]}).to_pickle(file, compression="gzip")


def refused(benchmark: Benchmark, workspace: Workspace) -> EnvironmentMissing:
    with pytest.raises(EnvironmentMissing) as caught:
        prepare(preparation_of(benchmark, workspace, 2), lambda *_: None)
    return caught.value


def test_missing_checkpoint_is_reported_with_the_download_command(benchmark: Benchmark, workspace: Workspace) -> None:
    error = refused(benchmark, workspace)
    assert error.where == str(workspace.models / benchmark.checkpoint.quantized)
    assert "checkpoint.quantized of models/llama2-70b/benchmark.yaml" in error.expected
    assert "LAB_MODEL" in error.expected
    assert error.hint == "harness-llm download --model llama2-70b --part model, then bash setup/quantize_llama2_70b.sh"
    assert error.exit_code == 3


@pytest.mark.parametrize(
    ("name", "setting", "part"),
    [("evaluation", "dataset.sets.evaluation.file", "dataset"), ("calibration", "dataset.calibration", "calibration")],
)
def test_missing_data_set_is_reported_with_the_download_command(
    benchmark: Benchmark, workspace: Workspace, name: str, setting: str, part: str
) -> None:
    put_checkpoint(benchmark, workspace)
    put_data(benchmark, workspace)
    file = PublishedPreparation(benchmark, workspace).files[name]
    file.unlink()
    error = refused(benchmark, workspace)
    assert error.where == str(file)
    assert f"{setting} in models/llama2-70b/benchmark.yaml" in error.expected
    assert "LAB_DATASET" in error.expected
    assert error.hint == f"harness-llm download --model llama2-70b --part {part}"


def test_missing_livecodebench_data_is_reported(workspace: Workspace) -> None:
    preparation = PublishedPreparation(load_benchmark("deepseek-r1", Workspace(CHECKOUT)), workspace)
    stage = next(stage for stage in preparation.stages() if stage.name == "LiveCodeBench")
    assert not stage.done()
    with pytest.raises(EnvironmentMissing, match="missing LiveCodeBench data set") as caught:
        stage.make(lambda *_: None)
    assert caught.value.where == str(workspace.data / "livecodebench")
    assert caught.value.hint == "harness-llm download --model deepseek-r1 --part livecodebench"


def test_long_prompts_of_the_calibration_set_are_truncated_and_of_the_evaluation_set_refused(
    benchmark: Benchmark, workspace: Workspace
) -> None:
    preparation = PublishedPreparation(benchmark, workspace)
    long = pd.DataFrame({"tok_input": [[1] * 1025, [3]], "output": ["a", "b"]})
    for file in preparation.files.values():
        file.parent.mkdir(parents=True, exist_ok=True)
        long.to_pickle(file, compression="gzip")
    preparation.convert(preparation.files["calibration"], lambda *_: None)
    store = open_store(preparation.assets.calibration)
    assert [len(store.prompt(i)) for i in range(2)] == [1024, 1]
    with pytest.raises(ConfigError, match="invalid prompt"):
        preparation.convert(preparation.files["evaluation"], lambda *_: None)


def test_data_set_is_converted_once(benchmark: Benchmark, workspace: Workspace) -> None:
    put_checkpoint(benchmark, workspace)
    put_data(benchmark, workspace)
    preparation = preparation_of(benchmark, workspace, 2)
    assert missing(preparation) == ["data set: evaluation", "data set: calibration"]
    assets = prepare(preparation, lambda *_: None)
    assert missing(preparation) == []
    store = open_store(assets.store("performance"))
    assert [store.prompt(i).tolist() for i in range(2)] == [[1, 2], [3]]
    assert store.targets() == ["a", "b"]
    assert assets.store("accuracy") == assets.store("TEST06") == assets.stores["evaluation"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_stand_in_keeps_the_rules_and_is_not_submittable(name: str) -> None:
    real = load_benchmark(name, CHECKED_OUT)
    small = stand_in(real, load_benchmark(DEMO, CHECKED_OUT))
    assert (small.name, small.variants, small.accuracy.metrics) == (real.name, real.variants, real.accuracy.metrics)
    assert {n: s.samples for n, s in small.dataset.sets.items()} == {n: s.samples for n, s in real.dataset.sets.items()}
    assert small.accuracy.scoring.keys() == real.accuracy.scoring.keys()
    assert small.divisions == ("open",)
    assert small.obstacle
    assert not small.accuracy.sentence_split  # its data is a download
    assert real.dataset.source in WRITERS


@pytest.mark.parametrize("name", PUBLISHED)
def test_rehearsed_stand_in_keeps_engine_settings_and_sampling(name: str) -> None:
    real = load_benchmark(name, CHECKED_OUT)
    small = stand_in(real, load_benchmark(DEMO, CHECKED_OUT), rehearsed=True)
    assert (small.settings, small.engine_scenarios) == (real.settings, real.engine_scenarios)
    assert (small.sampling, small.sampling_of) == (real.sampling, real.sampling_of)
    assert small.divisions == ("open",)
    assert "replay engine" in small.obstacle


@pytest.fixture(scope="module")
def with_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with the demo and its data set."""
    workspace = Workspace(tmp_path_factory.mktemp("stand-ins"))
    (workspace.benchmarks / DEMO).mkdir(parents=True)
    file = Path("models") / DEMO / "benchmark.yaml"
    (workspace.root / file).write_text((CHECKOUT / file).read_text())
    next(s for s in DemoPreparation(load_benchmark(DEMO, workspace), workspace, 6).stages()).make(lambda *_: None)
    return workspace


@pytest.mark.parametrize("name", PUBLISHED)
def test_stand_in_data_is_read_as_the_published_files(name: str, with_tokenizer: Workspace) -> None:
    real = load_benchmark(name, CHECKED_OUT)
    few = {n: s.model_copy(update={"samples": 6}) for n, s in real.dataset.sets.items()}
    real = real.model_copy(update={"dataset": real.dataset.model_copy(update={"sets": few})})
    preparation = preparation_of(stand_in(real, load_benchmark(DEMO, CHECKED_OUT)), with_tokenizer, 6)
    for stage in [stage for stage in preparation.stages() if stage.name.startswith("data set:")]:
        assert not stage.done()
        stage.make(lambda *_: None)
        assert stage.done()
    for store in preparation.assets.stores.values():
        opened = open_store(store)
        assert len(opened) == 6
        assert set(opened.kinds()) <= set(real.accuracy.scoring)
