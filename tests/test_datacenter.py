"""Requirements of closed datacenter submissions; open reports them only."""

import shutil
from pathlib import Path

import pytest
import trees
from runs import recorded_node, write_run
from test_architecture_document import DESCRIPTION, ECC, TWO_NODES, result

from harness_llm.errors import ConfigError, GateFailed
from harness_llm.hardware.ecc import Ecc, Fact, State
from harness_llm.runs.selection import RunStatus, Selection, Todo
from harness_llm.submission.datacenter import Requirements, measured_results, requirements_of
from harness_llm.submission.package import _refuse_without_ecc

SLOW = result("deepseek-r1", "Offline", 1e5)  # 64 Gbit/s out, the narrowest part has 40
GOOD = result("llama3.1-405b", "Server", 12.5)
UNREAD = Fact(State.UNKNOWN)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "2x8xAccel.yaml"
    file.write_text(TWO_NODES)
    return file


def owed(file: Path, ecc: Ecc = ECC, **changes: str) -> Requirements:
    found = requirements_of(DESCRIPTION | {"system_type": "datacenter,edge"} | changes, ecc, file)
    assert found
    return found


def test_complete_requirements_are_accepted(file: Path) -> None:
    found = owed(file)
    found.require()
    found.require([GOOD])
    assert (found.missing(), found.violations([GOOD])) == ([], [])
    assert "llama3.1-405b" in found.render("box", [GOOD])


def test_edge_systems_have_no_datacenter_requirements(file: Path) -> None:
    assert requirements_of(DESCRIPTION | {"system_type": "edge"}, ECC, file) is None


def test_too_small_bandwidth_is_refused(file: Path) -> None:
    with pytest.raises(GateFailed) as caught:
        owed(file).require([GOOD, SLOW])
    assert caught.value.found == "deepseek-r1 Offline requires 64 Gbit/s out; available: 40 Gbit/s (NIC to CPU)"
    assert owed(file).violations([GOOD, SLOW]) == [caught.value.found]


@pytest.mark.parametrize(("memory", "accelerators"), [(State.OFF, State.ON), (State.ON, State.OFF)])
def test_disabled_ecc_is_refused(file: Path, memory: State, accelerators: State) -> None:
    with pytest.raises(GateFailed, match=f"ECC of the {'memory' if memory is State.OFF else 'accelerators'} is off"):
        owed(file, Ecc(Fact(memory, "EDAC"), Fact(accelerators, "amdgpu"))).require()


def test_all_unknown_requirements_are_listed_at_once(tmp_path: Path) -> None:
    missing = tmp_path / "2x8xAccel.yaml"
    found = owed(missing, Ecc(UNREAD, UNREAD))
    with pytest.raises(ConfigError) as caught:
        found.require([SLOW])
    keys = ("architecture.nodes", "architecture.nics", "architecture.data_path", "ecc.memory", "ecc.accelerators")
    assert [line.split(":")[0].strip() for line in caught.value.found.splitlines()[1:]] == list(keys)
    assert (len(found.missing()), found.violations([SLOW])) == (len(keys), [])


def test_stated_ecc_is_accepted(file: Path) -> None:
    file.write_text(f"{TWO_NODES}\necc: {{memory: true, accelerators: true}}\n")
    owed(file, Ecc(UNREAD, UNREAD)).require()
    file.write_text(f"{TWO_NODES}\necc: {{memory: true, accelerators: false}}\n")
    with pytest.raises(GateFailed, match="ECC of the accelerators is off"):
        owed(file, Ecc(UNREAD, UNREAD)).require()


def test_undetected_accelerators_are_required(file: Path) -> None:
    unseen = Ecc(Fact(State.ON, "EDAC"), Fact(State.ABSENT))
    assert owed(file, unseen).missing() == ["ecc.accelerators: true or false; this machine does not report it"]
    assert owed(file, unseen, accelerators_per_node="0").missing() == []


def test_required_bandwidth_follows_from_the_logs(tmp_path: Path) -> None:
    home = trees.build_tree(tmp_path, "open", scenarios=("Offline", "Server")) / "open" / trees.SUBMITTER
    shutil.copytree(home / trees.R / "tiny" / "Server", home / trees.R / "tiny" / "SingleStream")
    found = measured_results(home, trees.SYSTEM, trees.ROUND)
    assert [(r.benchmark, r.scenario) for r in found] == [("tiny", "Offline"), ("tiny", "Server")]
    assert all(r.ingress_tokens == trees.RULES.ingress_tokens == 1024 for r in found)
    log = trees.performance_log("Offline")
    assert found[0].samples_per_s == log["result_samples_per_second"]


def test_results_of_other_harnesses_are_left_out(tmp_path: Path) -> None:
    home = trees.build_tree(tmp_path, "open", scenarios=("Offline",)) / "open" / trees.SUBMITTER
    (home / trees.R / "qwen3-vl-235b-a22b" / "Offline").mkdir(parents=True)
    assert [r.benchmark for r in measured_results(home, trees.SYSTEM, trees.ROUND)] == ["tiny"]
    (home / trees.R / "no-benchmark" / "Offline").mkdir(parents=True)
    with pytest.raises(ConfigError, match="has no benchmark"):
        measured_results(home, trees.SYSTEM, trees.ROUND)


def test_system_without_results_requires_no_bandwidth(tmp_path: Path) -> None:
    assert measured_results(tmp_path, "nobody", trees.ROUND) == []


@pytest.mark.parametrize(("state", "refused"), [("off", True), ("on", False), ("unknown", False)])
def test_run_with_disabled_ecc_is_refused_at_packaging(tmp_path: Path, state: str, refused: bool) -> None:
    run = write_run(
        tmp_path, "Offline", "performance", nodes={"": recorded_node({"memory_ecc": state, "kernel": "off"})}
    )
    selection = Selection((RunStatus(run.run_key, run, "VALID", "", Todo.NOTHING),))
    if not refused:
        _refuse_without_ecc(selection)
        return
    with pytest.raises(GateFailed, match="a run was made with ECC off") as caught:
        _refuse_without_ecc(selection)
    assert (caught.value.where, caught.value.found) == (str(run.path), "memory_ecc")
