"""Several nodes as one system: joint description, and facts that must be equal."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness_llm.errors import EnvironmentMissing, RunFailed
from harness_llm.hardware.ecc import Ecc, Fact, State
from harness_llm.hardware.nodes import merged, merged_ecc
from harness_llm.paths import CHECKOUT
from harness_llm.protocol import child_processes
from harness_llm.replicas.ray import cluster
from harness_llm.replicas.ray.cluster import Cluster, Node, NodeInfo, query_cluster, require_alike

MACHINE = {
    "number_of_nodes": "1",
    "host_processor_model_name": "AMD EPYC 9575F",
    "accelerators_per_node": "8",
    "host_networking": "1x Ethernet 400 Gb/s",
}
ON, OFF, UNKNOWN, ABSENT = (
    Fact(State.ON, "EDAC: SECDED"),
    Fact(State.OFF, "SMBIOS"),
    Fact(State.UNKNOWN),
    Fact(State.ABSENT),
)
HERE = Path("/models/llama")


def node(number: int, **changes: object) -> Node:
    info = NodeInfo(
        folder="/checkout/harness_llm",
        source="s",
        packages={"vllm": "0.32.0"},
        inherited={},
        machine=MACHINE,
        host={"kernel": "6.8"},
        ecc=Ecc(ON, ON),
        digests={str(HERE): "d"},
    )
    return Node(address=f"10.0.0.{number}", cpus=64, gpus=8, info=msgspec.structs.replace(info, **changes))


def test_equal_nodes_are_described_once() -> None:
    assert merged([MACHINE] * 3) == MACHINE | {"number_of_nodes": "3"}


def test_different_nodes_are_described_separately() -> None:
    other = MACHINE | {"host_processor_model_name": "INTEL Xeon 8592+"}
    words = merged([MACHINE, other, other])["host_processor_model_name"]
    assert words == "1 node: AMD EPYC 9575F; 2 nodes: INTEL Xeon 8592+"


def test_differing_and_unknown_numbers_are_left_empty() -> None:
    other = {name: value for name, value in MACHINE.items() if name != "host_networking"} | {
        "accelerators_per_node": "4"
    }
    assert merged([MACHINE, other]) == {"number_of_nodes": "2", "host_processor_model_name": "AMD EPYC 9575F"}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ([ON, ON], ON),
        ([ON, OFF], State.OFF),
        ([ON, UNKNOWN], State.UNKNOWN),
        ([ABSENT, ON], ON),
        ([ABSENT, ABSENT], ABSENT),
    ],
)
def test_one_node_without_ecc_disables_ecc(facts: list[Fact], expected: Fact | State) -> None:
    found = merged_ecc([Ecc(fact, ON) for fact in facts]).memory
    assert expected in (found, found.state)


def test_equal_nodes_are_accepted() -> None:
    require_alike([node(1), node(2)], [HERE])


@pytest.mark.parametrize(
    ("changes", "where", "found"),
    [
        ({"source": "t"}, "10.0.0.2: /checkout/harness_llm", "t"),
        ({"packages": {"vllm": "0.31.0"}}, "10.0.0.2: vllm", "0.31.0"),
        ({"packages": {}}, "10.0.0.2: vllm", "none"),
        ({"digests": {str(HERE): ""}}, "10.0.0.2: /models/llama", "nothing"),
        ({"digests": {str(HERE): "e"}}, "10.0.0.2: /models/llama", "e"),
    ],
)
def test_difference_from_the_head_is_named_with_its_node(changes: dict[str, object], where: str, found: str) -> None:
    with pytest.raises(EnvironmentMissing, match=r"^10\.0\.0\.2 has ") as raised:
        require_alike([node(1), node(2, **changes)], [HERE])
    assert raised.value.where == where
    assert raised.value.found == found


def test_run_record_and_fingerprint_contain_the_nodes() -> None:
    cluster = Cluster("10.0.0.1:6379", (node(1), node(2, inherited={"NCCL_DEBUG": "INFO"})))
    assert list(cluster.records()) == ["10.0.0.1", "10.0.0.2"]
    assert cluster.records()["10.0.0.2"].host == {"kernel": "6.8"}
    assert [facts["inherited"] for facts in cluster.facts()] == [{}, {"NCCL_DEBUG": "INFO"}]
    assert "10.0.0" not in str(cluster.facts())


def test_head_reserves_cores_for_loadgen() -> None:
    cluster = Cluster("10.0.0.1:6379", (node(1), node(2)))
    assert [(c.address, c.cpus) for c in cluster.capacities(2)] == [("10.0.0.1", 62), ("10.0.0.2", 64)]


@pytest.mark.processes
def test_nodes_have_more_time_to_hash_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(_module: str, _arguments: object, **options: Any) -> child_processes.Child:
        answer = msgspec.json.encode(node(1)).decode()
        environment = {"PYTHONPATH": f"{CHECKOUT / 'tests'}:{CHECKOUT}"}
        return child_processes.start("child", ("node_query", "2", answer), **options | {"environment": environment})

    monkeypatch.setattr(cluster, "start", begin)
    monkeypatch.setattr(cluster, "_PATIENCE_S", 1.5)
    assert query_cluster("head:6379", tmp_path / "log", [HERE]).head == "10.0.0.1"
    with pytest.raises(RunFailed, match=r"within 1\.5 s"):
        query_cluster("head:6379", tmp_path / "log")
