"""Quantization: recipes of accelerators, calibration samples, records and documents."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from command_line import CommandLine
from runs import BENCHMARK, SYSTEM, write_run
from submissions import submission_of

from harness_llm.config.assets import Assets
from harness_llm.config.benchmark import Benchmark, SampleSet, benchmark_names, load_benchmark
from harness_llm.config.checkpoint import QUANTIZATION, read_record
from harness_llm.config.rules import load_round
from harness_llm.errors import ConfigError, EnvironmentMissing, GateFailed, RunFailed
from harness_llm.evaluate.run_result import Scorer
from harness_llm.hardware.gpus import NO_ACCELERATOR, load_gpus
from harness_llm.loadgen.logs import ACCURACY
from harness_llm.paths import CHECKOUT, ROOT_VARIABLE, Workspace
from harness_llm.prepare.quantize.job import CalibrationSet, Job, pieces, run_job
from harness_llm.prepare.quantize.quantize import PROGRAMS, calibration_set, quantize, quantize_checkpoint
from harness_llm.prepare.quantize.recipes import TABLE, Recipe, load_recipes, require_format
from harness_llm.protocol.token_store import open_store, write_store
from harness_llm.runs.record import State, find_runs
from harness_llm.runs.selection import Wanted, select
from harness_llm.submission.calibration import read_quantization, render_calibration
from harness_llm.submission.package import package

HERE = Workspace(CHECKOUT)
GPUS = load_gpus(HERE)
DEMO = load_benchmark(BENCHMARK, HERE)
RECIPES = load_recipes(DEMO, HERE)
QUANTIZED = [
    benchmark
    for benchmark in (load_benchmark(name, HERE) for name in benchmark_names(HERE))
    if benchmark.checkpoint.original != benchmark.checkpoint.quantized
]


def silent(*_: object) -> None:
    """Discard a report."""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The checkout's models/, ten samples to calibrate on, ten to evaluate, and an empty checkpoint."""
    shutil.copytree(CHECKOUT / "models", tmp_path / "models")
    made = Workspace(tmp_path)
    write_store(made.data / DEMO.dataset.calibration, [[1, 10 + i, 20 + i] for i in range(10)])
    write_store(made.data / DEMO.dataset.of("accuracy").file, [[1, 50 + i] for i in range(10)])
    (made.models / DEMO.checkpoint.original).mkdir(parents=True)
    (made.models / DEMO.checkpoint.original / "config.json").write_text("{}")
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    return made


def recipe(name: str = "fp8-static", **changes: Any) -> Recipe:
    return Recipe.model_validate(RECIPES.recipes[name].model_dump() | changes)


def job(workspace: Workspace, own: Recipe) -> Job:
    return Job(
        checkpoint=workspace.models / "demo",
        output=workspace.models / "out",
        recipe=own,
        calibration=CalibrationSet(file="demo/set", store=workspace.data / DEMO.dataset.calibration),
    )


# Recipes


@pytest.mark.parametrize("benchmark", QUANTIZED, ids=lambda benchmark: benchmark.name)
@pytest.mark.parametrize("gpu", [*GPUS, NO_ACCELERATOR])
def test_default_recipe_of_every_accelerator_has_a_supported_format(benchmark: Benchmark, gpu: str) -> None:
    chosen = load_recipes(benchmark, HERE).choose("", gpu)
    require_format(chosen, gpu, GPUS)
    assert chosen.weights in {benchmark.measurements["weight_data_types"], chosen.needs}


def test_default_recipe_of_mi300x_is_the_published_one() -> None:
    chosen = load_recipes(load_benchmark("llama2-70b", HERE), HERE).choose("", "mi300x")
    assert (chosen.tool, chosen.scheme, chosen.kv_cache, chosen.ignore) == ("quark", "fp8", "fp8", ("lm_head",))
    assert chosen.calibration
    assert (chosen.calibration.samples, chosen.calibration.sequence_length) == (1000, 1024)


def test_benchmark_overrides_apply_to_that_benchmark_only() -> None:
    large = load_recipes(load_benchmark("llama3.1-405b", HERE), HERE).choose("quark-fp8", NO_ACCELERATOR)
    assert large.calibration
    assert (large.calibration.samples, large.calibration.sequence_length) == (512, 8192)
    experts = load_recipes(load_benchmark("mixtral-8x7b", HERE), HERE)
    assert "*.gate" in experts.choose("quark-fp8", NO_ACCELERATOR).ignore
    assert "*.gate" not in RECIPES.choose("quark-fp8", NO_ACCELERATOR).ignore


@pytest.mark.parametrize("gpu", [*(name for name in GPUS if "mxfp4" not in GPUS[name].formats), NO_ACCELERATOR])
def test_mxfp4_is_refused_on_gpus_without_it(
    gpu: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = CommandLine(monkeypatch, capsys)("quantize", "--model", BENCHMARK, "--recipe", "mxfp4", "--gpu", gpu)
    assert done.code == 2
    assert f"unsupported number format of recipe mxfp4 on {gpu}" in done.err
    assert "expected: mxfp4, as of mi355x, mi350x, mi350p\n" in done.err


def test_mxfp4_is_accepted_on_mi355x() -> None:
    require_format(recipe("mxfp4"), "mi355x", GPUS)


@pytest.mark.parametrize("gpu", ["b200", "b300", "gb200", "gb300"])
def test_default_recipe_of_blackwell_is_nvfp4_where_it_was_published(gpu: str) -> None:
    published = {b.name for b in QUANTIZED if load_recipes(b, HERE).choose("", gpu).name == "nvfp4"}
    assert published >= {"llama2-70b", "llama3.1-8b", "llama3.1-405b"}
    assert "mixtral-8x7b" not in published, "published with a mix of FP4 and FP8"


@pytest.mark.parametrize("gpu", [*(name for name in GPUS if "nvfp4" not in GPUS[name].formats), NO_ACCELERATOR])
def test_nvfp4_is_refused_on_gpus_without_it(gpu: str) -> None:
    with pytest.raises(ConfigError, match=f"unsupported number format of recipe nvfp4 on {gpu}") as error:
        require_format(recipe("nvfp4"), gpu, GPUS)
    assert error.value.expected == "nvfp4, as of b200, gb200, b300, gb300"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["--recipe", "fp9"],
            "unknown recipe fp9\n  where: models/quantization.yaml\n  expected: fp8-dynamic, fp8-static",
        ),
        (
            ["--gpu", "b100"],
            "no default recipe for b100\n  where: models/quantization.yaml, accelerators\n  expected: mi300x",
        ),
    ],
)
def test_unknown_recipe_or_gpu_lists_the_known_ones(
    words: list[str],
    expected: str,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = CommandLine(monkeypatch, capsys)("quantize", "--model", BENCHMARK, *words)
    assert done.code == 2
    assert expected in done.err


def _edit(workspace: Workspace, change: Callable[[dict[str, Any]], object]) -> None:
    file = workspace.benchmarks / TABLE
    table = yaml.safe_load(file.read_text())
    change(table)
    file.write_text(yaml.safe_dump(table))


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table["recipes"]["int8"].update(bits=8),
        lambda table: table["recipes"]["int8"].update(tool="modelopt"),
        lambda table: table["calibration"].update(samples=0),
        lambda table: table["calibration"].update(sequence=1024),
        lambda table: table["benchmarks"].update(demo={"recipes": {}}),
    ],
)
def test_wrong_recipe_table_is_refused(workspace: Workspace, change: Callable[[dict[str, Any]], object]) -> None:
    _edit(workspace, change)
    with pytest.raises(ConfigError, match="invalid table of recipes"):
        load_recipes(DEMO, workspace)


# Calibration


def test_calibration_uses_the_first_samples_truncated(workspace: Workspace) -> None:
    own = recipe(calibration={"samples": 3, "sequence_length": 2})
    assert job(workspace, own).prompts() == [[1, 10], [1, 11], [1, 12]]
    assert job(workspace, recipe(calibration=None)).prompts() == []


def test_joined_calibration_samples_have_equal_length(workspace: Workspace) -> None:
    own = recipe("mxfp4", calibration={"samples": 3, "sequence_length": 4})
    assert job(workspace, own).prompts() == [[1, 10, 20, 1], [11, 21, 1, 12]]
    assert pieces([[1, 2]], 3) == []


def test_too_small_calibration_set_is_refused_before_the_start(workspace: Workspace) -> None:
    own = job(workspace, recipe(calibration={"samples": 11, "sequence_length": 96}))
    with pytest.raises(
        ConfigError, match=r"too few calibration samples for fp8-static\n  where: demo/set\n.*>= 11\n.*10"
    ):
        quantize_checkpoint(own, workspace, silent, python=Path(sys.executable))


def test_calibration_set_is_that_of_the_benchmark(workspace: Workspace) -> None:
    found = calibration_set(DEMO, workspace, silent)
    assert found == CalibrationSet(file=DEMO.dataset.calibration, store=workspace.data / DEMO.dataset.calibration)


def _named(calibration: str, **changes: Any) -> Benchmark:
    return DEMO.model_copy(
        update={"dataset": DEMO.dataset.model_copy(update={"calibration": calibration, **changes}), **changes}
    )


def test_evaluation_set_is_refused_for_calibration(workspace: Workspace) -> None:
    asked = DEMO.dataset.of("accuracy").file
    shutil.copytree(workspace.data / asked, workspace.data / "copy.store")
    for file in (asked, "copy.store"):
        with pytest.raises(ConfigError, match="calibration set is an evaluation set"):
            calibration_set(_named(file), workspace, silent)


def _published(workspace: Workspace, calibration: str) -> Benchmark:
    """A benchmark of two OpenOrca files."""
    for name, rows in (("asked.pkl", [[1, 2], [3]]), ("official.pkl", [[4, 5], [6]])):
        pd.DataFrame({"tok_input": rows, "output": ["a", "b"]}).to_pickle(workspace.data / name)
    sets = {"evaluation": SampleSet(file="asked.pkl", samples=2)}
    facts = {"source": "openorca", "calibration": calibration, "sets": sets}
    return DEMO.model_copy(update={"preparer": "published", "dataset": DEMO.dataset.model_copy(update=facts)})


def test_published_calibration_set_is_compared_with_the_evaluation_set_first(workspace: Workspace) -> None:
    found = calibration_set(_published(workspace, "official.pkl"), workspace, silent)
    assert found.file == "official.pkl"
    assert open_store(found.store).prompt(0).tolist() == [4, 5]
    with pytest.raises(ConfigError, match=r"found: asked\.pkl, the samples of asked\.pkl"):
        calibration_set(_published(workspace, "asked.pkl"), workspace, silent)
    assert not (workspace.data / "asked.store").exists()
    with pytest.raises(EnvironmentMissing, match="hint: harness-llm download --model demo --part calibration"):
        calibration_set(_published(workspace, "elsewhere.pkl"), workspace, silent)


# What is done, and said of it


def _run_job(own: Job, monkeypatch: pytest.MonkeyPatch, quantize: Callable[[Job, Path], None]) -> None:
    monkeypatch.setattr(sys, "argv", ["program", own.model_dump_json()])
    run_job(quantize, "pytest")


def _write(own: Job, folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "quark"}}))
    (folder / "model.safetensors").write_text(f"{len(own.prompts())}")


def test_record_of_a_quantization_has_recipe_tool_and_calibration(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = job(workspace, recipe("mxfp4", calibration={"samples": 4, "sequence_length": 3}))
    _run_job(own, monkeypatch, _write)
    record = read_record(own.output, QUANTIZATION)
    assert record
    digest = open_store(workspace.data / DEMO.dataset.calibration).digest
    assert record["calibration"]["file"] == "demo/set"
    assert (record["calibration"]["samples"], record["calibration"]["sha256"]) == (4, digest)
    assert record["tool"] == {"name": "pytest", "version": pytest.__version__}
    assert (record["recipe"]["name"], record["recipe"]["algorithm"]) == ("mxfp4", "gptq")
    assert [json.loads(line)["done"] for line in capsys.readouterr().out.splitlines()] == [0, 1]
    document = render_calibration(DEMO, read_quantization(own.output, {}))
    assert f"Quantized after training with pytest {pytest.__version__}" in document
    samples = "- samples: 4\n- sequence_length: 3\n- joined: concatenated"
    assert f"- file: demo/set\n- sha256: {digest}\n{samples}" in document
    assert "- Not quantized: lm_head." in document


def test_failed_quantization_leaves_no_file(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(own: Job, folder: Path) -> None:
        _write(own, folder)
        raise ZeroDivisionError

    own = job(workspace, recipe(calibration={"samples": 4, "sequence_length": 3}))
    with pytest.raises(ZeroDivisionError):
        _run_job(own, monkeypatch, fail)
    assert not list(workspace.models.glob("out*"))


@pytest.mark.parametrize(("name", "hint"), [("fp8-dynamic", "make setup"), ("quark-fp8", "make quark")])
def test_missing_environment_is_named_with_the_make_target(workspace: Workspace, name: str, hint: str) -> None:
    own = job(workspace, recipe(name))
    with pytest.raises(EnvironmentMissing, match=f"missing environment of {own.recipe.tool}\n(.*\n)*.*hint: {hint}"):
        quantize_checkpoint(own, workspace, silent, python=workspace.root / "none")


def test_benchmark_served_as_published_is_not_quantized() -> None:
    with pytest.raises(ConfigError, match="gpt-oss-120b needs no quantization"):
        quantize("gpt-oss-120b", "", "mi355x", silent, HERE)


def test_missing_checkpoint_is_named_with_the_download_command(workspace: Workspace) -> None:
    with pytest.raises(EnvironmentMissing, match="hint: harness-llm download --model llama2-70b --part model"):
        quantize("llama2-70b", "", "mi300x", silent, workspace)


REAL = ["fp8-static", "gptq-w4a16", "quark-fp8"]


@pytest.mark.slow
@pytest.mark.engine(seconds=120)
@pytest.mark.parametrize("name", REAL)
def test_recipe_is_applied_by_its_tool(
    name: str, assets: Assets, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    own = recipe(name)
    if not PROGRAMS[own.tool].python.is_file():
        pytest.skip(f"the environment of {own.tool} is not there: make {PROGRAMS[own.tool].target}")
    shutil.copytree(assets.original, workspace.models / "demo", dirs_exist_ok=True)
    shutil.rmtree(workspace.data)
    shutil.copytree(assets.calibration, workspace.data / DEMO.dataset.calibration)
    _edit(workspace, lambda table: table["calibration"].update(samples=8))
    quantize(BENCHMARK, name, NO_ACCELERATOR, silent, workspace)
    served = workspace.models / DEMO.checkpoint.quantized
    assert capsys.readouterr().out == f"{served}\n"
    document = render_calibration(DEMO, read_quantization(served, {}))
    assert "- file: demo/calibration.store\n" in document
    assert "- samples: 8\n- sequence_length: 96\n" in document
    told = {
        "fp8-static": "## KV cache\n\nFP8 (E4M3), symmetric, one scale per tensor",
        "gptq-w4a16": "INT4, symmetric, one scale per group of 128 values",
        "quark-fp8": "kv_cache_quant_config:",
    }
    assert told[name] in document


def test_failed_tool_is_reported_with_its_last_lines(workspace: Workspace) -> None:
    own = job(workspace, recipe(calibration={"samples": 4, "sequence_length": 3}))
    with pytest.raises(RunFailed, match="stage quantize failed"):
        quantize_checkpoint(own, workspace, silent, python=Path(sys.executable))


# Below the gate


@pytest.mark.engine(seconds=10)
def test_checkpoint_below_the_accuracy_gate_is_not_packaged(assets: Assets, workspace: Workspace) -> None:
    """Answers that no checkpoint should give, in the form of LoadGen's log."""
    variants = {DEMO.variants[0]: load_round("v6.1").benchmark(DEMO.variants[0])}
    write_run(workspace.logs, "Offline", "performance", profile="valid")
    run = write_run(workspace.logs, "Offline", "accuracy", profile="valid", finished=False)
    answers = [{"seq_id": i, "qsl_idx": i, "data": "07000000" * 7, "token_count": 7} for i in range(500)]
    (run.path / ACCURACY).write_text(json.dumps(answers))
    run_result = Scorer(DEMO, variants, assets).judge(run.path, 500, enforce=True)
    assert run_result.state is State.INVALID
    assert any("ROUGE1 fails" in reason for reason in run_result.reasons)
    write_run(
        workspace.logs,
        "Offline",
        "accuracy",
        profile="valid",
        hour=1,
        state=run_result.state,
        reasons=run_result.reasons,
    )
    submission = submission_of(DEMO, profile="valid")
    wanted = Wanted(DEMO.name, "valid", "v6.1", "open", newest=True)
    chosen = select(find_runs(workspace.logs, SYSTEM), ("Offline",), ("performance", "accuracy"), wanted)
    with pytest.raises(GateFailed, match=r"demo/Offline/accuracy: INVALID, accuracy of llama2-70b-99\.9: ROUGE1 fails"):
        package(submission, chosen, workspace, assets)
    assert not workspace.submission.exists()
