"""Speculative decoding, with the settings that the rules of the round allow."""

import json
from collections.abc import Mapping
from pathlib import Path

from harness_llm.config.commands import command, engine_setting, typed
from harness_llm.config.engine_config import EngineConfig
from harness_llm.config.engines import ENGINES
from harness_llm.config.rules import Speculation
from harness_llm.config.servers import FLAGS, server_kinds
from harness_llm.errors import ConfigError

SETTING = "harness_config.speculative_decoding"
_CLAUSE = "inference_rules.adoc, appendix Speculative Decoding"


def with_speculation(
    config: EngineConfig, scenario: str, *, engine: str, allowed: Mapping[str, Speculation], models: Path
) -> EngineConfig:
    """`config` with the `speculative_config` of `scenario`, if the setting includes the scenario.

    Args:
        allowed: by scenario, from the rules of the benchmark in the round.
        models: the folder of checkpoints and draft heads.

    Raises:
        ConfigError: the rules do not allow a scenario to speculate, the engine cannot, or the head is quantized.
    """
    asked = config.harness_config.speculative_decoding
    if refused := [name for name in asked if name not in allowed]:
        raise ConfigError(
            "the rules do not allow speculative decoding here",
            where=SETTING,
            expected=f"{', '.join(allowed) or 'no scenario of this benchmark in this round'} ({_CLAUSE})",
            found=", ".join(refused),
            hint=engine_setting(SETTING, ",".join(allowed)),
        )
    if scenario not in asked:
        return config
    _refuse_engine(engine, config)
    return config.model_copy(
        update={"llm_config": config.llm_config | {"speculative_config": _arguments(allowed[scenario], models)}}
    )


def draft_folder(head: str) -> str:
    """The folder of a draft head below the models folder."""
    return head.rpartition("/")[2]


def _arguments(rule: Speculation, models: Path) -> dict[str, object]:
    """The `speculative_config` of vLLM. Greedy draft sampling is top-k 1."""
    own = {"method": rule.method, "num_speculative_tokens": rule.tokens, "draft_sample_method": "greedy"}
    if not rule.head:
        return own
    head = models / draft_folder(rule.head)
    _refuse_quantized(head, rule.head)
    return own | {"model": str(head)}


def _refuse_quantized(folder: Path, head: str) -> None:
    """The head must have the precision in which it is provided (inference_rules.adoc:1218-1220)."""
    file = folder / "config.json"
    if file.is_file() and json.loads(file.read_text()).get("quantization_config"):
        raise ConfigError(
            "the draft head is quantized",
            where=str(file),
            expected=f"{head} as published ({_CLAUSE})",
            found="quantization_config",
            hint=f"delete the folder; {command('prepare')}, with the same options, downloads it again",
        )


def _refuse_engine(engine: str, config: EngineConfig) -> None:
    server, facts = config.server_config, ENGINES[engine]
    command = server.command or (server_kinds()[facts.kind or server.kind].command if facts.serves else "")
    if engine == "vllm" or (facts.serves and server.url) or FLAGS in command:
        return
    raise ConfigError(
        f"the engine {engine} does not support speculative decoding with these settings",
        where=SETTING,
        expected="vllm, or openai with vLLM's server",
        found=engine,
        hint=f"delete {typed(engine=engine)}",
    )
