"""The system description states the machines that the runs record, not the machine that packages them."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asked import options
from rich.console import Console
from runs import SUBJECT, SYSTEM, short_program, write_all, write_run
from workspaces import make_workspace

from harness_llm.config.assets import Assets
from harness_llm.config.plan import resolve
from harness_llm.config.request import Request
from harness_llm.errors import GateFailed
from harness_llm.hardware.ecc import UNTOLD, Ecc, Fact, State
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.submit import Pipeline
from harness_llm.runs.record import NodeRecord, Run
from harness_llm.runs.selection import Wanted, select
from harness_llm.submission.measured_system import MeasuredSystem, measured_system

ON = Ecc(Fact(State.ON, "EDAC"), Fact(State.ABSENT))
OFF = Ecc(Fact(State.OFF, "EDAC"), Fact(State.ABSENT))
DRIVER, NEW_DRIVER = ("Linux 6.8, NVIDIA driver 580", "Linux 6.8, NVIDIA driver 590")
TESTS = ("performance", "accuracy", "TEST06")


def machine(**changes: str) -> dict[str, str]:
    fields = {"number_of_nodes": "1", "accelerators_per_node": "8", "operating_system": "Ubuntu 24.04"}
    return fields | {"framework": "vllm 0.32.0", "other_software_stack": DRIVER} | changes


def node(ecc: Ecc = ON, **changes: str) -> NodeRecord:
    return NodeRecord(machine=machine(**changes), host={}, ecc=ecc)


HERE = node(framework="vllm 0.33.0", other_software_stack=NEW_DRIVER)


def test_description_is_of_the_recorded_machine(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "Offline", test, nodes={"": node()}) for test in TESTS]
    assert measured_system(runs) == MeasuredSystem(machine(), ON)


def on_gpus(replicas: int, size: int = 1, **changes: Any) -> dict[str, Any]:
    """The fingerprint of a run on GPUs."""
    shape = {"harness_config": {"replicas": replicas}, "llm_config": {"tensor_parallel_size": size}}
    return SUBJECT | {"packages": {"vllm": "0.30.0"}} | shape | changes


@pytest.mark.parametrize(
    ("fingerprints", "fields"),
    [
        ([on_gpus(4), on_gpus(4)], {"accelerators_per_node": "4"}),
        ([on_gpus(2, 2), on_gpus(3, 2)], {"accelerators_per_node": "6"}),
        ([on_gpus(1)], {"accelerators_per_node": "1", "accelerator_interconnect": "N/A"}),
        ([on_gpus(4, 2)], {}),
        ([on_gpus(1, server_config={"url": ["http://10.0.0.1:8000"]})], {}),
        ([SUBJECT], {}),
    ],
)
def test_accelerators_are_those_of_the_replicas(
    tmp_path: Path, fingerprints: list[dict[str, Any]], fields: dict[str, str]
) -> None:
    runs = [
        write_run(tmp_path, "Offline", test, nodes={"": node()}, fingerprint=facts)
        for test, facts in zip(TESTS, fingerprints, strict=False)
    ]
    assert measured_system(runs).machine == machine() | fields


def test_accelerators_of_a_cluster_are_those_of_its_nodes(tmp_path: Path) -> None:
    nodes = {"10.0.0.1": node(), "10.0.0.2": node()}
    run = write_run(tmp_path, "Offline", "performance", nodes=nodes, fingerprint=on_gpus(4))
    assert measured_system([run]).machine["accelerators_per_node"] == "8"


def test_recorded_nodes_of_a_cluster_are_one_system(tmp_path: Path) -> None:
    nodes = {"10.0.0.1": node(), "10.0.0.2": node()}
    run = write_run(tmp_path, "Offline", "performance", nodes=nodes)
    assert measured_system([run]).machine == machine(number_of_nodes="2")


def test_system_of_servers_on_other_hosts_has_no_detected_fields(tmp_path: Path) -> None:
    elsewhere = NodeRecord(machine={}, host={}, ecc=UNTOLD)
    run = write_run(tmp_path, "Offline", "performance", nodes={"": elsewhere})
    assert measured_system([run]) == MeasuredSystem({}, UNTOLD)


def test_ecc_is_the_worst_of_all_runs(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path, "Offline", test, nodes={"": node(ecc)})
        for test, ecc in zip(TESTS, (ON, OFF, ON), strict=True)
    ]
    assert measured_system(runs).ecc == OFF


def test_runs_of_benchmarks_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path, "Offline", "performance", nodes={})
    with pytest.raises(GateFailed, match="the runs do not record their machine") as caught:
        measured_system([run])
    assert caught.value.where == str(run.path)


# The pipeline


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    wanted = options(model="demo", gpu="cpu", scenarios="Offline", company="Acme", system_name=SYSTEM)
    return resolve(wanted, make_workspace(tmp_path))


def pipeline_of(request: Request) -> Pipeline:
    return Pipeline(request, Panel(Console(file=io.StringIO())), machine=dict(HERE.machine))


def some_assets(request: Request) -> Assets:
    folder = request.workspace.models / "some"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return Assets(folder, folder, {}, folder)


def packaged_description(request: Request, runs: list[Run]) -> dict[str, str]:
    selection = select(runs, ["Offline"], TESTS, Wanted("demo", "smoke", "v6.1", "open", newest=True))
    made = pipeline_of(request)._package(selection, some_assets(request))
    found: dict[str, str] = json.loads((made.tree / f"open/Acme/systems/{SYSTEM}.json").read_text())
    return found


def test_tree_made_after_an_upgrade_describes_the_measured_software(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_program(monkeypatch)
    runs = write_all(request_.workspace.logs, nodes={"": node()})
    found = packaged_description(request_, runs)
    assert (found["framework"], found["other_software_stack"]) == ("vllm 0.32.0", DRIVER)


def test_runs_record_the_machine_of_the_pipeline(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = SimpleNamespace()
    monkeypatch.setattr("harness_llm.pipeline.submit.start_scenario_pool", lambda *_: pool)
    monkeypatch.setattr(Pipeline, "fingerprint", lambda *_: {})
    (plan,) = request_.scenarios

    def recorded(request: Request) -> dict[str, NodeRecord]:
        return pipeline_of(request).start_context(request, plan, assets).nodes()

    assets = some_assets(request_)
    found = recorded(request_)[""]
    assert found.machine == HERE.machine
    assert found.host
    monkeypatch.setattr(Request, "measures_this_host", False)
    assert recorded(request_)[""].machine == {}
