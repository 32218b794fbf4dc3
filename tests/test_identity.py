"""What a server that runs already says of itself, over a real socket."""

import pytest
from token_server import TokenServer

from harness_llm.config.servers import server_kinds
from harness_llm.runs.server_identity import ask_server, identity_violations

VLLM = server_kinds()["vllm"]
SILENT = {"version": None, "id": None, "root": None, "max_model_len": None}


def test_a_server_tells_version_and_model() -> None:
    with TokenServer(version="0.32.0") as server:
        found = ask_server(server.url, VLLM)
        assert found == SILENT | {"url": server.url, "version": "0.32.0", "id": "stand-in"}
        assert identity_violations([found]) == []


def test_a_server_without_a_version_is_not_for_closed() -> None:
    with TokenServer() as server:
        found = [ask_server(server.url, kind) for kind in (VLLM, server_kinds()["triton"])]
    assert [facts["version"] for facts in found] == [None, None]
    assert (
        identity_violations(found)
        == [f"the server at {server.url} does not report its version, so the measured software is unknown"] * 2
    )


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://", "http://127.0.0.1:port"])
def test_what_cannot_be_asked_is_unknown(url: str) -> None:
    assert ask_server(url, VLLM) == SILENT | {"url": url}
