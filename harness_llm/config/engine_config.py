"""Engine settings: models/defaults.yaml, then engine.yaml, <gpu>.yaml and <scenario>_<gpu>.yaml of
models/<benchmark>/, then --set.
"""

import difflib
import math
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from harness_llm.config.benchmark import Benchmark, Sampling
from harness_llm.config.engine_arguments import engine_arguments, expected_value
from harness_llm.config.in_flight import InFlightLimit
from harness_llm.config.servers import server_kinds
from harness_llm.config.settings_files import settings_files
from harness_llm.errors import ConfigError
from harness_llm.fileio import parse_yaml, read_yaml
from harness_llm.paths import Workspace


class HarnessConfig(BaseModel):
    """Settings of harness-llm itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    replicas: int = Field(ge=1, description="engines, one per tensor-parallel group")
    backlog: int = Field(ge=0, description="Offline: queries of a replica in flight beyond max_num_seqs")
    speculative_decoding: tuple[str, ...] = Field(
        description="scenarios with speculative decoding, where the rules allow it; separated by commas"
    )
    warm_up_tokens: int = Field(ge=1, description="tokens per answer to the calibration prompts of the warm-up")
    loadgen_cpus: int = Field(ge=1, description="cores reserved for LoadGen's process")
    startup_timeout_s: float = Field(gt=0, description="seconds until a replica that is not ready fails")
    heartbeat_timeout_s: float = Field(gt=0, description="seconds without a heartbeat until a replica fails")
    on_replica_failure: Literal["requeue", "fail"] = Field(
        description="send the queries of a failed replica to other replicas, or end the run"
    )
    stall_timeout_s: float = Field(
        gt=0,
        description="seconds without a step until a replica with queries fails; a run ends after twice that time "
        "without completions",
    )

    @field_validator("speculative_decoding", mode="before")
    @classmethod
    def _split_names(cls, scenarios: object) -> object:
        if not isinstance(scenarios, str | None):
            return scenarios
        return tuple(name.strip() for name in (scenarios or "").split(",") if name.strip())


class ServerConfig(BaseModel):
    """Servers of engines over HTTP: running ones, or one that each replica starts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str = Field(description="command and API of the servers, an entry of harness_llm/config/servers.yaml")
    url: tuple[str, ...] = Field(description="running servers, one replica for each; separated by commas")
    command: str = Field(description="command that starts a server, instead of that of its kind")
    connections: int = Field(ge=1, description="concurrent requests to a server; further queries wait")
    attempts: int = Field(ge=1, description="attempts to send a query until the first byte of its answer")

    @field_validator("kind")
    @classmethod
    def _check_kind(cls, kind: str) -> str:
        if kind not in server_kinds():
            raise ValueError(f"one of {', '.join(server_kinds())}")
        return kind

    @field_validator("url", mode="before")
    @classmethod
    def _split_urls(cls, urls: object) -> object:
        """The addresses without a final /v1, which other programs require."""
        if not isinstance(urls, str | None):
            return urls
        found = tuple(url.strip().rstrip("/").removesuffix("/v1") for url in (urls or "").split(",") if url.strip())
        if not all(url.startswith(("http://", "https://")) for url in found):
            raise ValueError("http://host:port, or several separated by commas")
        return found


class ReplayConfig(BaseModel):
    """The replay engine, which computes nothing: its answers and its simulated speed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prefill_tokens_per_s: float = Field(ge=0, description="prompt tokens per second; 0 for no prefill time")
    step_s: float = Field(ge=0, description="seconds per step")
    step_s_per_sequence: float = Field(ge=0, description="seconds that each running sequence adds to a step")
    output_tokens: float = Field(
        ge=2, description="mean length of an answer; a prompt always has an answer of the same length"
    )
    output_spread: float = Field(
        ge=0, description="standard deviation of the logarithm of lengths; 0 for equal lengths"
    )
    recorded: str = Field(description="directory of an accuracy run whose answers are replayed")
    speeds: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        min_length=1, description="speed factors of the replicas in turn, which divide all durations"
    )
    processes: int = Field(ge=1, description="processes of the replicas")

    def speed(self, replica: int) -> float:
        """The speed factor of replica number `replica`."""
        return self.speeds[replica % len(self.speeds)]


def group_size(llm_config: Mapping[str, Any]) -> int:
    """Devices of one replica with the engine arguments `llm_config`."""
    return math.prod(int(llm_config.get(f"{name}_parallel_size", 1)) for name in ("tensor", "pipeline"))


class EngineConfig(BaseModel):
    """The resolved configuration of one scenario; stored with each run.

    Attributes:
        llm_config: engine arguments of vLLM, with the fixed ones.
        server_config: only for engines over HTTP.
        replay_config: only for the replay engine.
        env_config: environment variables of the replicas.
        sampling: the benchmark's, unless --set changes it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    llm_config: dict[str, Any]
    harness_config: HarnessConfig
    server_config: ServerConfig
    replay_config: ReplayConfig
    env_config: dict[str, str]
    sampling: Sampling

    @property
    def replicas(self) -> int:
        """Replicas of the pool: one for each running server, otherwise harness_config.replicas."""
        return len(self.server_config.url) or self.harness_config.replicas

    @property
    def group(self) -> int:
        """Devices of one replica."""
        return group_size(self.llm_config)

    @property
    def over_nodes(self) -> bool:
        """Whether vLLM's ray executor places the workers of a replica, which can be on several nodes."""
        return self.llm_config.get("distributed_executor_backend") == "ray"

    @property
    def draft_tokens(self) -> int:
        """Draft tokens per step; 0 without speculative decoding."""
        return int((self.llm_config.get("speculative_config") or {}).get("num_speculative_tokens", 0))

    @property
    def in_flight_limit(self) -> InFlightLimit:
        """In-flight limit of a replica in Offline."""
        return InFlightLimit(int(self.llm_config["max_num_seqs"]), self.harness_config.backlog)


# "Every input query must be computed in its entirety" (inference_rules.adoc, LLM rules): no prefix caching. Token ids
# only: no tokenizer. Sampling comes from benchmark.yaml: no generation_config. Statistics count preemptions.
FIXED: dict[str, Any] = {
    "enable_prefix_caching": False,
    "skip_tokenizer_init": True,
    "generation_config": "vllm",
    "disable_log_stats": False,
    "seed": 0,
}
# Arguments of vLLM that cannot be set, and why.
REFUSED = {
    "model": "benchmark.yaml names the checkpoint",
    "tokenizer": "prompts are token ids",
    "skip_tokenizer_init": "prompts are token ids",
    "seed": "only LoadGen's seeds are used",
    "generation_config": "benchmark.yaml sets the sampling",
    "override_generation_config": "benchmark.yaml sets the sampling",
    **dict.fromkeys(
        ("speculative_config", "spec_method", "spec_model", "spec_tokens"),
        "harness_config.speculative_decoding enables speculative decoding where the rules allow it "
        "(inference_rules.adoc, appendix Speculative Decoding)",
    ),
    "logits_processors": "benchmark.yaml sets the sampling",
    "hf_overrides": "the checkpoint defines the model",
    **dict.fromkeys(
        ("kv_transfer_config", "kv_offloading_size", "kv_offloading_backend", "ec_transfer_config"),
        "results of one query cannot be reused for another (inference_rules.adoc, LLM rules)",
    ),
    "disable_log_stats": "the engine's statistics count preemptions",
    "data_parallel_size": "1; harness_config.replicas sets the number of engines",
}
SET = "--set"
PROVENANCE = "provenance"  # of the values of a settings file: `kind` and `source`, docs/supported.md
URL_VARIABLE = "HARNESS_LLM_SERVER_URL"
REQUIRED = ("max_model_len", "max_num_seqs")


def load_config(
    benchmark: Benchmark, scenario: str, gpu: str, sets: Iterable[str], workspace: Workspace
) -> EngineConfig:
    """Merge and check the configuration of `scenario` on `gpu`.

    Raises:
        ConfigError: a file is missing, or a setting is unknown, forbidden or wrong.
    """
    layers = {str(f): _read(f) for f in settings_files(workspace.benchmarks, benchmark, scenario, gpu)}
    if urls := os.environ.get(URL_VARIABLE):
        layers[URL_VARIABLE] = {"server_config": {"url": urls}}
    layers |= {f"{SET} {text}": _parse_set(text) for text in sets}
    known = engine_arguments()
    merged: dict[str, Any] = {"sampling": benchmark.sampling.model_dump()}
    for where, layer in layers.items():
        check_engine_arguments(layer.get("llm_config", {}), where, known)
        for section, values in layer.items():
            merged.setdefault(section, {}).update(values)
    merged["env_config"] = {key: _variable(value) for key, value in merged["env_config"].items()}
    try:
        config = EngineConfig.model_validate(merged)
    except ValidationError as error:
        raise _setting_error(error, layers) from error
    for name in REQUIRED:
        _check_required(name, config.llm_config, layers)
    return config.model_copy(update={"llm_config": config.llm_config | FIXED})


def _read(file: Path) -> dict[str, Any]:
    """Return the sections of a settings file without `provenance`."""
    content = read_yaml(file) or {}
    if not isinstance(content, dict) or not all(isinstance(v, dict) for v in content.values()):
        raise ConfigError("settings must be sections of keys", where=str(file), found=str(content)[:80])
    return {section: values for section, values in content.items() if section != PROVENANCE}


def _variable(value: object) -> str:
    """The text of an environment variable; vLLM reads most switches with int()."""
    return str(int(value) if isinstance(value, bool) else value)


def _parse_set(text: str) -> dict[str, Any]:
    path, equals, value = text.partition("=")
    section, _, key = path.partition(".")
    if not (equals and key):
        raise ConfigError("invalid --set", expected="section.key=value", found=text)
    return {section: {key: parse_yaml(value, f"--set {text}")}}


def _setting_error(error: ValidationError, layers: Mapping[str, dict[str, Any]]) -> ConfigError:
    first = error.errors()[0]
    section, key = (*map(str, first["loc"]), "")[:2]
    where, found = _place(section, key, layers), str(first["input"])
    if first["type"] != "extra_forbidden":
        return ConfigError("a setting is wrong", where=where, expected=first["msg"], found=found)
    sections: dict[str, type[BaseModel]] = {
        "harness_config": HarnessConfig,
        "server_config": ServerConfig,
        "replay_config": ReplayConfig,
        "sampling": Sampling,
    }
    known = sections[section].model_fields if key else EngineConfig.model_fields
    return ConfigError("a setting is unknown", where=where, found=found, hint=_nearest(key or section, list(known)))


def _place(section: str, key: str, layers: Mapping[str, dict[str, Any]]) -> str:
    """The last layer that sets a key or a section, and its name; the scenario's file if none does."""
    setters = [where for where, layer in layers.items() if section in layer and (not key or key in layer[section])]
    files = [where for where in layers if not where.startswith((SET, URL_VARIABLE))]
    return f"{setters[-1] if setters else files[-1]}: {section}{key and '.'}{key}"


def _check_required(name: str, llm_config: dict[str, Any], layers: Mapping[str, dict[str, Any]]) -> None:
    """Require an integer for an argument that harness-llm uses too."""
    where = _place("llm_config", name, layers)
    if name not in llm_config:
        raise ConfigError("an engine argument is missing", where=where)
    if type(llm_config[name]) is not int:
        found = str(llm_config[name])
        raise ConfigError("an engine argument is wrong", where=where, expected="a whole number", found=found)


def _nearest(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0)
    return f"the nearest valid one is {close[0]}"


def check_engine_arguments(llm_config: dict[str, Any], where: str, known: Collection[str]) -> None:
    """Check engine arguments.

    Raises:
        ConfigError: an argument is unknown, forbidden or fixed by the rules, or has a wrong value.
    """
    for name, value in llm_config.items():
        place = f"{where}: llm_config.{name}"
        if name not in known:
            raise ConfigError(
                "this vLLM has no such engine argument",
                where=place,
                found=name,
                hint=_nearest(name, known),
            )
        if name == "enable_prefix_caching" and value is not False:
            raise ConfigError(
                "prefix caching is not allowed: every input query must be computed in its entirety",
                where=place,
                expected="false (inference_rules.adoc, LLM rules)",
                found=str(value),
                hint="delete the line; it is off",
            )
        if name in REFUSED:
            raise ConfigError("this engine argument is fixed", where=place, expected=REFUSED[name])
        if expected := expected_value(name, value):
            raise ConfigError("an engine argument is wrong", where=place, expected=expected, found=str(value))
