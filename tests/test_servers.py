"""The kinds of servers, and the commands that start them."""

from pathlib import Path
from typing import Any

import pytest
from token_server import TokenServer

from harness_llm.config.engine_arguments import engine_arguments
from harness_llm.config.engine_config import FIXED
from harness_llm.config.engines import ENGINES
from harness_llm.config.servers import command_line, flags, server_kinds
from harness_llm.runs.server_identity import ask_server, identity_violations

CONFIG: dict[str, Any] = {"max_model_len": 2048, "max_num_seqs": 8, "tensor_parallel_size": 2, **FIXED}


def words(kind: str, template: str = "", **config: Any) -> str:
    command = command_line(
        template or server_kinds()[kind].command,
        "/models/my model",
        CONFIG | config,
        port=8123,
        options=Path("/options.yaml"),
        program=["python", "llmboost.py"],
    )
    assert "/models/my model" in command
    return " ".join(command)


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"max_model_len": 5}, ["--max-model-len", "5"]),
        ({"enforce_eager": True}, ["--enforce-eager"]),
        ({"enable_prefix_caching": False}, ["--no-enable-prefix-caching"]),
        ({"compilation_config": {"mode": 3}}, ["--compilation-config", '{"mode": 3}']),
        ({"cudagraph_capture_sizes": [1, 2]}, ["--cudagraph-capture-sizes", "1", "2"]),
        ({"disable_log_stats": True, "max_loras": None}, []),
    ],
)
def test_vllm_server_flags_follow_from_the_settings(config: dict[str, Any], found: list[str]) -> None:
    assert flags(config) == found


@pytest.mark.parametrize("kind", [name for name, kind in server_kinds().items() if kind.command])
def test_every_server_command_is_complete_and_listens_on_this_host(kind: str) -> None:
    command = words(kind)
    assert "127.0.0.1" in command
    assert "8123" in command
    assert "{" not in command


@pytest.mark.parametrize(
    ("kind", "switch"), [("vllm", "--no-enable-prefix-caching"), ("sglang", "--disable-radix-cache")]
)
def test_prefix_caching_is_switched_off(kind: str, switch: str) -> None:
    assert switch in words(kind)


def test_prefix_caching_of_trtllm_is_switched_off() -> None:
    assert server_kinds()["trtllm"].options["kv_cache_config"] == {"enable_block_reuse": False}
    assert "/options.yaml" in words("trtllm")


def test_own_server_command_is_filled_in() -> None:
    assert words("vllm", "serve '{checkpoint}' -p {port} -n {max_num_seqs}") == "serve /models/my model -p 8123 -n 8"
    with pytest.raises(KeyError, match="max_model_length"):
        words("vllm", "serve {checkpoint} {max_model_length}")


def test_engines_name_known_server_kinds() -> None:
    assert {facts.kind for facts in ENGINES.values() if facts.kind} <= server_kinds().keys()


@pytest.mark.engine  # imports vLLM
def test_fixed_arguments_exist_in_vllm() -> None:
    pytest.importorskip("vllm")
    assert FIXED.keys() <= engine_arguments()


# Version and model of a running server


VLLM = server_kinds()["vllm"]
SILENT = {"version": None, "id": None, "root": None, "max_model_len": None}


def test_version_and_model_are_read_from_the_server() -> None:
    with TokenServer(version="0.32.0") as server:
        found = ask_server(server.url, VLLM)
        assert found == SILENT | {"url": server.url, "version": "0.32.0", "id": "stand-in"}
        assert identity_violations([found]) == []


def test_server_without_a_version_is_a_violation() -> None:
    with TokenServer() as server:
        found = [ask_server(server.url, kind) for kind in (VLLM, server_kinds()["triton"])]
    assert [facts["version"] for facts in found] == [None, None]
    assert (
        identity_violations(found)
        == [f"the server at {server.url} does not report its version, so the measured software is unknown"] * 2
    )


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://", "http://127.0.0.1:port"])
def test_identity_of_an_unreachable_server_is_unknown(url: str) -> None:
    assert ask_server(url, VLLM) == SILENT | {"url": url}
