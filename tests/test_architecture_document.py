"""system_architecture.md of two nodes, with bandwidths recomputed by hand."""

import re
from pathlib import Path

import pytest
import yaml
from packages import pack
from runs import short_program, write_all

from harness_llm.config.architecture import Architecture, load_architecture
from harness_llm.config.rules.rounds import load_round
from harness_llm.config.system_file import load_overrides
from harness_llm.errors import ConfigError
from harness_llm.hardware.ecc import Ecc, Fact, State
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.submission.architecture_document import _TITLE as TITLE
from harness_llm.submission.architecture_document import merged, missing_facts, render_architecture
from harness_llm.submission.bandwidth import MeasuredResult

RULES = load_round("v6.0")

DESCRIPTION = dict.fromkeys((*RULES.system.filled, *RULES.system.present), "") | {
    "submitter": "Acme",
    "system_name": "2x8xAccel",
    "number_of_nodes": "2",
    "host_processors_per_node": "2",
    "host_processor_model_name": "Acme Host 9000",
    "host_processor_core_count": "64",
    "host_memory_capacity": "1511 GiB",
    "accelerators_per_node": "8",
    "accelerator_model_name": "Acme Accel",
}
ECC = Ecc(Fact(State.ON, "EDAC: SECDED"), Fact(State.ON, "stated in 2x8xAccel.yaml, not read"))

TWO_NODES = """
architecture:
  nodes:
    - {name: head, count: 1, role: LoadGen and eight accelerators}
    - {name: worker, count: 1}
  nics:
    - {model: Acme 25G, count: 2, gbit_s: 25}
    - {model: Acme 10G, count: 1, gbit_s: 10}
  data_path:
    - {from: NIC, to: CPU, kind: PCIe Gen3 x8, count: 1, gbit_s: 40, evidence: measured with perftest}
    - {from: CPU, to: accelerators, kind: PCIe Gen5 x16, count: 8, gbit_s: 504, evidence: PCIe 5.0 specification}
  equipment:
    - {model: Acme switch, count: 1}
"""


def architecture(text: str = TWO_NODES) -> Architecture:
    return Architecture.model_validate(yaml.safe_load(text)["architecture"])


def result(benchmark: str, scenario: str, samples_per_s: float) -> MeasuredResult:
    return MeasuredResult.of(benchmark, scenario, samples_per_s, RULES.benchmark(benchmark))


def rows(document: str, title: str) -> list[list[str]]:
    """The runs of the tables in a section, without their heads."""
    section = document.split(f"\n## {title}\n")[1].split("\n## ", maxsplit=1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[run_key.strip() for run_key in line.strip("|").split("|")] for line in lines[2:]]


def test_document_has_required_and_available_bandwidths_of_two_nodes() -> None:
    results = [
        result("llama2-70b-99.9", "Offline", 250.0),
        result("llama3.1-405b", "Server", 12.5),
        result("llama3.1-8b", "Interactive", 1000.0),
        result("deepseek-r1", "Offline", 1e5),
    ]
    document = render_architecture("box", DESCRIPTION, architecture(), ECC, results)
    # in Gbit/s: samples/s x tokens x 4 bytes x 8 bits / 10^9. The NICs have 2 x 25 + 10 = 60, the x8 slot has 40.
    assert rows(document, "Bandwidth") == [
        # 250 x 1024 x 32 = 8 192 000
        ["llama2-70b-99.9", "Offline", "250", "1024", "0.008192", "1024", "0.008192", "40", "NIC to CPU", "yes"],
        # 12.5 x 20000 x 32 = 8 000 000
        ["llama3.1-405b", "Server", "12.5", "20000", "0.008", "20000", "0.008", "40", "NIC to CPU", "yes"],
        # 1000 x 2048 x 32 = 65 536 000, and no size for what goes out
        ["llama3.1-8b", "Interactive", "1000", "2048", "0.065536", "negligible", "> 0", "40", "NIC to CPU", "yes"],
        # 100000 x 3136 x 32 = 10 035 200 000; 100000 x 20000 x 32 = 64 000 000 000
        ["deepseek-r1", "Offline", "100000", "3136", "10.0352", "20000", "64", "40", "NIC to CPU", "**no**"],
    ]
    assert "## Not stated" not in document


def test_document_describes_nodes_network_and_path() -> None:
    document = render_architecture("box", DESCRIPTION, architecture(), ECC, [])
    assert document.startswith("# System architecture of box\n")
    assert "- 1 x head: LoadGen and eight accelerators\n- 1 x worker\n" in document
    assert ["Processors", "2 x Acme Host 9000, 64 cores each"] in rows(document, "Nodes")
    assert ["Accelerators", "8 x Acme Accel"] in rows(document, "Nodes")
    assert ["ECC of the memory, on the node that was read", "on (EDAC: SECDED)"] in rows(document, "Nodes")
    assert "on (stated in 2x8xAccel.yaml, not read)" in document
    assert rows(document, "Network") == [["2", "Acme 25G", "25"], ["1", "Acme 10G", "10"]]
    assert "- 1 x Acme switch\n" in document
    assert re.search(r"^2\. CPU to accelerators: 8 x PCIe Gen5 x16, 504 .*4032 Gbit/s together", document, re.MULTILINE)
    assert "Evidence: measured with perftest" in document


def test_missing_value_is_named_by_its_key() -> None:
    known = architecture("architecture: {nics: [{model: A, count: 1}], data_path: [{from: N, to: C, kind: PCIe}]}")
    missing = missing_facts(DESCRIPTION, known)
    assert [key.split(":")[0] for key in missing] == [
        "architecture.nodes",
        "architecture.nics[0].gbit_s",
        "architecture.data_path[0].gbit_s",
        "architecture.data_path[0].evidence",
    ]
    document = render_architecture("box", DESCRIPTION, known, ECC, [result("llama3.1-405b", "Server", 12.5)])
    assert all(f"- {key}\n" in document for key in missing)
    assert "The bandwidths of the system are not stated" in document


def test_several_nodes_must_all_be_named() -> None:
    stated = architecture()
    assert missing_facts(DESCRIPTION, stated) == []
    assert "2 are stated" in missing_facts(DESCRIPTION | {"number_of_nodes": "3"}, stated)[0]
    alone = stated.model_copy(update={"nodes": ()})
    assert missing_facts(DESCRIPTION | {"number_of_nodes": "1"}, alone) == []
    assert [key.split(":")[0] for key in missing_facts(DESCRIPTION | {"number_of_nodes": "1"}, None)] == [
        "architecture.nics",
        "architecture.data_path",
    ]


def test_document_without_any_value_is_written() -> None:
    document = render_architecture("box", DESCRIPTION | {"accelerators_per_node": "0"}, None, ECC, [])
    assert ["Accelerators", "none"] in rows(document, "Nodes")
    assert "The system has no datacenter results." in document


def test_section_of_one_system_is_replaced_and_others_are_kept() -> None:
    old, new, other = (
        "# System architecture of B\n\nold\n",
        "# System architecture of B\n\nnew\n",
        "# System architecture of A\n",
    )
    assert merged("", old) == old
    assert merged(merged(merged("", old), other), new) == f"{other}\n{new}"


def test_systems_of_one_system_name_have_sections_by_their_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    short_program(monkeypatch)
    workspace = Workspace(tmp_path)
    workspace.systems.mkdir(parents=True)
    for system in ("box-1", "box-2"):
        (workspace.systems / f"{system}.yaml").write_text('system_name: "Acme Box (2x CPU)"\n')
        write_all(workspace.logs, system=system)
        home = pack(workspace, system=system).tree / "open" / "Acme"
    document = (home / "documentation" / "system_architecture.md").read_text()
    assert re.findall("^# .*", document, re.MULTILINE) == [f"{TITLE}box-1", f"{TITLE}box-2"]
    assert all((home / file).is_file() for file in re.findall(r"systems/.*?\.json", document))
    assert all((tmp_path / file).is_file() for file in re.findall(r"submission/systems/.*?\.yaml", document))


def test_architecture_section_of_a_system_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "box.yaml"
    assert load_architecture(file) is None
    file.write_text("cooling: Liquid\n")
    assert load_architecture(file) is None
    file.write_text(TWO_NODES)
    assert load_architecture(file) == architecture()


def example(page: str, file: Path) -> Architecture:
    """Write the example of a page into `file`, and read it."""
    file.write_text((CHECKOUT / "docs" / page).read_text().split("```yaml\n")[1].split("```", maxsplit=1)[0])
    found = load_architecture(file)
    assert found
    return found


def test_example_of_a_node_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "box.yaml"
    found = example("closed-datacenter.md", file)
    assert missing_facts({**DESCRIPTION, "number_of_nodes": "1"}, found) == []
    assert (found.nodes, found.equipment) == ((), ())
    stated = load_overrides(file, load_round("v6.1"))
    assert {*stated} == {"status", "host_memory_configuration", "host_networking_topology", "cooling"}
    assert stated["status"] in load_round("v6.1").system.statuses


def test_example_of_a_cluster_completes_that_of_a_node(tmp_path: Path) -> None:
    node, cluster = (example(page, tmp_path / page) for page in ("closed-datacenter.md", "cluster.md"))
    both = node.model_copy(update={"nodes": cluster.nodes, "equipment": cluster.equipment})
    assert sum(one.count for one in both.nodes) == 2
    assert missing_facts(DESCRIPTION, both) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{nic: []}", "architecture.nic: "),
        ("{nics: [{gbits: 1}]}", "architecture.nics.0.gbits: "),
        ("{nics: [{gbit_s: -1}]}", "architecture.nics.0.gbit_s: "),
        ("{data_path: [{to: CPU, kind: PCIe}]}", "architecture.data_path.0.from: "),
        ("[]", "architecture of a system must be a section"),
    ],
)
def test_wrong_architecture_section_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "box.yaml"
    file.write_text(f"architecture: {text}\n")
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        load_architecture(file)
    assert str(file) in str(caught.value)
