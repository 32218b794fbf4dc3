"""Engine settings that vLLM resolves, and what it makes of them."""

from typing import Any

import msgspec


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario's settings.

    Attributes:
        config: config.json of the checkpoint.
        env: environment variables of the replicas.
        platform: cuda, rocm or cpu.
    """

    config: dict[str, Any]
    llm_config: dict[str, Any]
    env: dict[str, str]
    platform: str


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A value that vLLM refuses; `argument` is empty where the refusal is of a combination."""

    argument: str = ""
    expected: str = ""
    found: str


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """What vLLM made of a candidate.

    Attributes:
        platform: `none` where this build of vLLM has another platform than the candidate.
        attention_backend: the one that vLLM chooses; empty without the platform.
    """

    platform: str
    violations: list[Violation] = []
    dtype: str = ""
    kv_cache_dtype: str = ""
    quantization: str = ""
    attention_backend: str = ""
