"""The demo's stages: which are repeated, and how their processes end. Training and quantization are faked."""

import json
import os
import py_compile
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE_S, ends, wait_until

from harness_llm.config.assets import missing, prepare
from harness_llm.config.benchmark import Accuracy, SampleSet, load_benchmark
from harness_llm.config.checkpoint import checkpoint_digest, write_record
from harness_llm.errors import ConfigError, EnvironmentMissing, RunFailed
from harness_llm.fileio import replacing
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.prepare.demo import stages as assets
from harness_llm.prepare.demo.stages import DemoPreparation, reference_sources
from harness_llm.prepare.quantize.job import Job
from harness_llm.prepare.stage import compiling, run_stage
from harness_llm.protocol.token_store import open_store

pytestmark = pytest.mark.processes

SAMPLES = 8
ALL = ["data set", "train", "quantize", "reference"]


@pytest.fixture
def benchmark():
    demo = load_benchmark("demo", Workspace(CHECKOUT))
    sets = {"evaluation": SampleSet(file="demo/evaluation.store", samples=20)}
    return demo.model_copy(update={"dataset": demo.dataset.model_copy(update={"sets": sets})})


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "models").mkdir()
    shutil.copy(CHECKOUT / "models" / "quantization.yaml", tmp_path / "models")
    return Workspace(tmp_path)


@pytest.fixture
def made(monkeypatch, tmp_path):
    """Stand-ins that keep each program's contract; the list of those that ran."""
    names: list[str] = []

    def stand_in(command, log, report):
        name = log.stem
        names.append(name)
        if name == "quantize":
            job = Job.model_validate_json(command[-1])
            with replacing(job.output) as folder:
                (folder / "model.safetensors").write_text(f"{name} {len(names)}")
                write_record(folder, "quantization.json", source=checkpoint_digest(job.checkpoint))
            return
        options = dict(zip(command[3::2], command[4::2], strict=True))
        output = Path(options["--output"])
        with replacing(output) as folder:
            if name == "reference":
                facts = reference_sources(
                    Path(options["--checkpoint"]),
                    open_store(Path(options["--store"])),
                    int(options["--max-tokens"]),
                    Accuracy.model_validate_json(options["--accuracy"]),
                )
                (folder / "scores.json").write_text(json.dumps(facts | {"scores": {}}))
                return
            (folder / "model.safetensors").write_text(f"{name} {len(names)}")
            (folder / "tokenizer.json").write_bytes(Path(options["--tokenizer"]).read_bytes())
            write_record(folder, "manifest.json")

    monkeypatch.setattr(assets, "run_stage", stand_in)
    monkeypatch.setattr(assets, "ENGINE", "sys")
    monkeypatch.setattr("harness_llm.prepare.quantize.quantize.run_stage", stand_in)
    monkeypatch.setattr(DemoPreparation, "quantizer", Path(sys.executable))
    monkeypatch.setattr(DemoPreparation.__init__, "__defaults__", (Path(sys.executable),))
    return names


def silent(text, done):
    """Discard a report."""


def test_all_stages_run_once(benchmark, workspace, made):
    assert missing(DemoPreparation(benchmark, workspace, SAMPLES)) == ALL
    result = prepare(DemoPreparation(benchmark, workspace, SAMPLES), silent)
    assert made == ["train", "quantize", "reference"]
    assert result == DemoPreparation(benchmark, workspace, SAMPLES).assets
    paths = (result.checkpoint, result.original, result.calibration, result.reference, *result.stores.values())
    assert all(path.exists() for path in paths)
    assert missing(DemoPreparation(benchmark, workspace, SAMPLES)) == []
    prepare(DemoPreparation(benchmark, workspace, SAMPLES), silent)
    assert made == ["train", "quantize", "reference"]


def test_another_number_of_samples_repeats_the_reference_only(benchmark, workspace, made):
    prepare(DemoPreparation(benchmark, workspace, SAMPLES), silent)
    assert missing(DemoPreparation(benchmark, workspace, SAMPLES + 1)) == ["reference"]
    prepare(DemoPreparation(benchmark, workspace, SAMPLES + 1), silent)
    assert missing(DemoPreparation(benchmark, workspace, SAMPLES)) == []


@pytest.mark.parametrize(
    ("removed", "redone"),
    [
        ("store/manifest.json", []),  # the same tokenizer comes out, so no child has to run
        ("tokenizer", []),
        ("original/manifest.json", ["train", "quantize", "reference"]),
        ("checkpoint/quantization.json", ["quantize"]),
        ("reference", ["reference"]),
    ],
)
def test_incomplete_stage_is_repeated(benchmark, workspace, made, removed, redone):
    result = prepare(DemoPreparation(benchmark, workspace, SAMPLES), silent)
    attribute, _, name = removed.partition("/")
    holder = DemoPreparation(benchmark, workspace, SAMPLES) if attribute in {"store", "tokenizer"} else result
    (getattr(holder, attribute) / name if name else getattr(holder, attribute)).unlink()
    assert missing(DemoPreparation(benchmark, workspace, SAMPLES))
    before = len(made)
    prepare(DemoPreparation(benchmark, workspace, SAMPLES), silent)
    assert missing(DemoPreparation(benchmark, workspace, SAMPLES)) == []
    assert made[before:] == redone


def test_changed_tokenizer_makes_all_checkpoints_stale(benchmark, workspace, made):
    prepare(DemoPreparation(benchmark, workspace, SAMPLES), silent)
    tokenizer = DemoPreparation(benchmark, workspace, SAMPLES).tokenizer
    tokenizer.write_text(tokenizer.read_text() + "\n")
    assert missing(DemoPreparation(benchmark, workspace, SAMPLES)) == ["train", "quantize", "reference"]
    prepare(DemoPreparation(benchmark, workspace, SAMPLES), silent)
    assert made[3:] == ["train", "quantize", "reference"]


@pytest.mark.parametrize("attribute", ["original", "checkpoint"])
def test_damaged_checkpoint_is_named_and_not_replaced(benchmark, workspace, made, attribute):
    result = prepare(DemoPreparation(benchmark, workspace, SAMPLES), silent)
    weights = getattr(result, attribute) / "model.safetensors"
    weights.write_text("flipped")
    with pytest.raises(ConfigError) as caught:
        prepare(DemoPreparation(benchmark, workspace, SAMPLES), silent)
    assert caught.value.where == str(weights)
    assert weights.read_text() == "flipped"


def test_missing_quantization_environment_is_reported(benchmark, workspace, made, monkeypatch):
    monkeypatch.setattr(DemoPreparation.__init__, "__defaults__", (Path("nowhere/python"),))
    with pytest.raises(EnvironmentMissing) as caught:
        prepare(DemoPreparation(benchmark, workspace, SAMPLES), silent)
    assert caught.value.hint == "make setup"
    assert missing(DemoPreparation(benchmark, workspace, SAMPLES)) == ["quantize", "reference"]


def program(text):
    return [sys.executable, "-c", text]


def test_stage_reports_the_progress_of_its_child(tmp_path):
    said = []
    line = json.dumps({"stage": "train", "done": 0.5, "text": "step 1/2"})
    run_stage(program(f"print('noise'); print({line!r})"), tmp_path / "train.log", lambda *a: said.append(a))
    assert said == [("train: step 1/2", 0.5)]


def test_failed_stage_names_its_log_with_the_last_lines(tmp_path):
    with pytest.raises(RunFailed) as caught:
        run_stage(program("raise SystemExit('out of ' + 'luck')"), tmp_path / "logs" / "train.log", silent)
    assert caught.value.where == str(tmp_path / "logs" / "train.log")
    assert "out of luck" in caught.value.found


def test_killed_stage_hints_at_memory(tmp_path):
    with pytest.raises(RunFailed) as caught:
        run_stage(program("import os; os.kill(os.getpid(), 9)"), tmp_path / "quantize.log", silent)
    assert "memory is exhausted" in caught.value.hint


def test_child_ends_with_its_stage(tmp_path):
    pid = tmp_path / "pid"
    text = (
        f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); print('{{}}', flush=True); time.sleep(1200)"
    )
    with pytest.raises(KeyError):  # what is reported lacks its keys, so the stage breaks off
        run_stage(program(text), tmp_path / "train.log", silent)
    assert not Path(f"/proc/{pid.read_text()}").exists()


def test_module_is_compiled_during_the_block_and_the_child_ends_with_it(tmp_path, monkeypatch):
    pid, module = tmp_path / "pid", "module_of_an_engine"
    (tmp_path / f"{module}.py").write_text(
        f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(1200)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    with compiling(module):
        wait_until(lambda: pid.exists() and pid.read_text(), PATIENCE_S, "a process id")
    assert list(tmp_path.glob(f"**/{module}*.pyc"))
    assert not Path(f"/proc/{pid.read_text()}").exists()


def test_compiled_module_is_not_imported_again(tmp_path, monkeypatch):
    imported, module = tmp_path / "imported", "module_that_is_compiled"
    (tmp_path / f"{module}.py").write_text(f"open({str(imported)!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    py_compile.compile(str(tmp_path / f"{module}.py"))
    monkeypatch.setattr(subprocess, "Popen", None)  # a child would be an error
    with compiling(module):
        pass
    assert not imported.exists()


def test_child_of_a_stage_ends_when_the_parent_is_killed(tmp_path):
    pid = tmp_path / "pid"
    child = (
        f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid()))\n"
        "while True: print('noise', flush=True); time.sleep(0.05)"
    )
    parent = (
        "import sys; from pathlib import Path; from harness_llm.prepare.stage import run_stage\n"
        f"run_stage([sys.executable, '-c', {child!r}], Path({str(tmp_path / 'x.log')!r}), print)"
    )
    with subprocess.Popen(program(parent), cwd=CHECKOUT) as process:
        wait_until(lambda: pid.exists() and pid.read_text(), PATIENCE_S, "a process id")
        os.kill(process.pid, signal.SIGKILL)
    assert ends(int(pid.read_text()))
