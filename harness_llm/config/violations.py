"""Where engine settings and benchmark files violate the rules, or exceed the features of the engine."""

from harness_llm.config.benchmark import Benchmark
from harness_llm.config.commands import engine_setting, typed
from harness_llm.config.engine_config import EngineConfig
from harness_llm.config.engines import ENGINES
from harness_llm.config.llmboost import find_wheel
from harness_llm.config.rules import BenchmarkRules
from harness_llm.config.servers import server_kinds
from harness_llm.errors import ConfigError


def violations(config: EngineConfig, benchmark: Benchmark) -> list[str]:
    """Where the configuration violates the benchmark's rules; closed allows none."""
    found = [
        f"sampling.{name} is {value}, the benchmark requires {getattr(benchmark.sampling, name)}"
        for name, value in config.sampling
        if value != getattr(benchmark.sampling, name)
    ]
    answers = [config.sampling, *(config.sampling.changed(own) for own in benchmark.sampling_of.values())]
    longest = benchmark.dataset.longest_prompt + max(sampling.max_tokens for sampling in answers)
    if config.llm_config["max_model_len"] < longest:
        found.append(
            f"max_model_len {config.llm_config['max_model_len']} cuts answers: longest prompt and answer are {longest}"
        )
    return found


def rule_violations(benchmark: Benchmark, rules: BenchmarkRules) -> list[str]:
    """Where benchmark.yaml differs from the rules of the round."""
    sampling, accuracy = benchmark.sampling, benchmark.sampling_for("accuracy")
    facts = {
        **{f"sampling.{name}": (getattr(sampling, name), right) for name, right in rules.sampling},
        "sampling.min_tokens": (sampling.min_tokens, rules.min_output_tokens),
        "sampling.max_tokens": (sampling.max_tokens, rules.max_output_tokens),
        "accuracy: sampling.max_tokens": (
            accuracy.max_tokens,
            rules.accuracy_max_output_tokens or rules.max_output_tokens,
        ),
        "sampling.stop_token_ids": (sampling.stop_token_ids, rules.eos_ids),
        "dataset: samples": (benchmark.dataset.of("performance").samples, rules.samples),
        "dataset: accuracy samples": (
            benchmark.dataset.of("accuracy").samples,
            rules.accuracy_samples or rules.samples,
        ),
    }
    return [
        f"benchmark.yaml: {key} is {own}, the round requires {right}"
        for key, (own, right) in facts.items()
        if own != right
    ]


def refuse_engine(engine: str, config: EngineConfig, *, stream: bool) -> None:
    """Check that `engine` supports the benchmark.

    Args:
        stream: whether first tokens are reported.

    Raises:
        ConfigError: the engine does not support it.
        EnvironmentMissing: LLMBoost is not installed.
    """
    sampling = config.sampling
    if config.server_config.url and not ENGINES[engine].serves:
        serving = ", ".join(name for name, facts in ENGINES.items() if facts.serves)
        raise ConfigError(
            f"the engine {engine} does not use servers", where="server_config.url", expected=f"ENGINE {serving}"
        )
    if ENGINES[engine].kind == "llmboost" and not config.server_config.url:
        find_wheel()
    for asked, able, what, where, instead in (
        (
            sampling.beams > 1,
            "beams",
            "has no beam search",
            "sampling.beams",
            f", or in open {engine_setting('sampling.beams', 1)}",
        ),
        (stream, "streams", "reports no first tokens", "scenario", f", or only {typed(scenarios='Offline')}"),
        (
            bool(sampling.stop_sequences),
            "stop_sequences",
            "does not support stop sequences",
            "sampling.stop_sequences",
            "",
        ),
    ):
        if asked and not getattr(ENGINES[engine], able):
            having = [name for name, facts in ENGINES.items() if getattr(facts, able)]
            raise ConfigError(
                f"the engine {engine} {what}",
                where=where,
                expected=f"one of: {', '.join(having)}",
                hint=f"{typed(engine=having[0])}{instead}",
            )


def refuse_unproven_servers(engine: str, config: EngineConfig, division: str) -> None:
    """Refuse servers in closed that cannot show which software computed every prompt.

    Raises:
        ConfigError: their kind reports no cache hits, or no version although they run already.
    """
    if division != "closed" or not ENGINES[engine].serves:
        return
    own, kinds, running = ENGINES[engine].kind, server_kinds(), bool(config.server_config.url)
    name = own or config.server_config.kind
    if missing := kinds[name].unproven(running=running):
        proven = [other for other, kind in kinds.items() if not kind.unproven(running=running)]
        raise ConfigError(
            f"closed does not count runs of {name} servers",
            where=typed(engine=engine) if own else "server_config.kind",
            expected=f"a server that reports cache hits, and its version if it runs already: {', '.join(proven)}",
            found=f"no {' and no '.join(missing)}",
            hint=f"{typed(division='open')}, or {typed(engine='vllm')}",
        )


def refuse_violations(found: list[str], division: str) -> None:
    """Refuse violations in closed.

    Raises:
        ConfigError: there is one.
    """
    if found and division == "closed":
        raise ConfigError(
            "closed does not allow these changes",
            expected="the benchmark's own sampling, sample count and lengths",
            found="; ".join(found),
            hint=f"undo the changes, or use {typed(division='open')}",
        )
