"""Closed accepts servers on this host or on a named node of the system file, and no others."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml
from asked import options
from command_line import CommandLine
from machines import hide_tools
from workspaces import CLOSED, NAMES, SUBMIT, make_workspace

from harness_llm.config.plan import resolve
from harness_llm.config.request import Request
from harness_llm.config.rules import load_round
from harness_llm.config.server_location import distant_servers, location_violations
from harness_llm.hardware import device_lock as devices
from harness_llm.paths import Workspace
from harness_llm.runs import server_identity

LOCAL, DISTANT, NOWHERE = "http://localhost:8000", "http://192.0.2.7:8000", "http://node.invalid:8000"
NAMED = "architecture:\n  nodes:\n    - { name: node, count: 1, role: server, hosts: [192.0.2.7] }\n"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    hide_tools(monkeypatch)
    monkeypatch.setattr(devices, "make_locks", lambda: tmp_path)
    monkeypatch.setattr(server_identity, "_TIMEOUT_S", 0.1)  # no network reaches DISTANT
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    return make_workspace(tmp_path)


@pytest.fixture
def harness(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    assert workspace
    return CommandLine(monkeypatch, capsys)


def at(url: str) -> list[str]:
    return ["--engine", "openai", "--gpu", "cpu", "--set", f"server_config.url={url}"]


def write_system(workspace: Workspace, text: str) -> None:
    workspace.systems.mkdir(parents=True, exist_ok=True)
    (workspace.systems / "box.yaml").write_text(text)


def request_of(workspace: Workspace, url: str, division: str) -> Request:
    words: dict[str, Any] = {"model": CLOSED, "engine": "openai", "scenarios": "Offline", "system_name": "box"}
    return resolve(options(**(words | {"division": division, "set": [f"server_config.url={url}"]})), workspace)


def test_addresses_of_this_host_are_local() -> None:
    assert distant_servers([LOCAL, "http://127.0.0.1", "http://[::1]:80", f"http://{socket.gethostname()}"]) == []


def test_other_addresses_and_unknown_names_are_remote() -> None:
    assert distant_servers([LOCAL, DISTANT, NOWHERE]) == [DISTANT, NOWHERE]


def test_named_node_is_compared_by_address() -> None:
    assert location_violations([DISTANT, LOCAL], ["192.0.2.7"]) == []
    assert location_violations([DISTANT], ["192.0.2.8", "node.invalid"]) == [
        f"the server at {DISTANT} is neither on this host nor on a node of the described system"
    ]
    assert location_violations([NOWHERE], ["node.invalid"])


@pytest.mark.parametrize("url", [DISTANT, f"{LOCAL},{NOWHERE}"])
def test_closed_refuses_a_remote_server_before_the_run(harness: CommandLine, url: str) -> None:
    done = harness(*SUBMIT, *at(url))
    assert done.code == 2
    assert "closed does not allow a server outside the described system" in done.err
    assert f"the server at {url.rpartition(',')[2]} is neither on this host nor on a node" in done.err
    assert "inference_rules.adoc:493-496" in done.err
    assert "hint: --division open, or add the nodes to " in done.err


def test_closed_accepts_a_server_of_this_host(workspace: Workspace) -> None:
    request = request_of(workspace, LOCAL, "closed")
    assert request.measures_this_host
    assert [plan.violations for plan in request.scenarios] == [[]]


def test_open_records_a_remote_server(workspace: Workspace) -> None:
    (plan,) = request_of(workspace, DISTANT, "open").scenarios
    assert plan.violations == location_violations([DISTANT], [])


def doctor(harness: CommandLine, url: str, check: str) -> list[str]:
    """The values that `check` of closed found, a line each."""
    words = ["--model", CLOSED, "--division", "closed", "--profile", "valid", *NAMES]
    results = json.loads(harness("doctor", "--json", *words, *at(url)).out)["checks"]
    (found,) = [result["observed"] for result in results if result["name"] == check]
    return [line.strip() for line in found.splitlines()]


def test_hardware_of_a_named_node_is_read_from_the_system_file(workspace: Workspace, harness: CommandLine) -> None:
    write_system(workspace, NAMED)
    assert not request_of(workspace, DISTANT, "closed").measures_this_host
    nothing = {"host_processor_model_name: (empty)", "accelerators_per_node: (empty)"}
    assert nothing <= set(doctor(harness, DISTANT, "System description"))
    assert not nothing & set(doctor(harness, LOCAL, "System description"))


def test_ecc_of_a_named_node_is_read_from_the_system_file(workspace: Workspace, harness: CommandLine) -> None:
    fields = set(load_round("v6.1").system.filled) - {"division", "submitter", "system_type"}
    stated = dict.fromkeys(sorted(fields), "stated")
    stated |= {"status": "available", "number_of_nodes": "1", "accelerators_per_node": "8"}
    write_system(workspace, NAMED + yaml.safe_dump(stated))
    found = doctor(harness, DISTANT, "Closed requirements")
    assert [line.partition(":")[0] for line in found if line.startswith("ecc")] == ["ecc.memory", "ecc.accelerators"]


def test_network_division_is_refused(harness: CommandLine) -> None:
    done = harness("submit", "--dry-run", "--model", CLOSED, "--gpu", "cpu", "--division", "network", *NAMES)
    assert done.code == 2
    assert "the network division is not supported" in done.err
    assert "expected: closed or open" in done.err
