"""Words that users of other harnesses type: each becomes ours, or is refused with what takes its place."""

import shlex
from collections.abc import Sequence

from harness_llm.errors import ConfigError

MAPPED = {
    "--scenario": ("--scenarios", "{}"),
    "--device": ("--gpu", "{}"),
    "--tensor-parallel-size": ("--set", "llm_config.tensor_parallel_size={}"),
    "--batch-size": ("--set", "llm_config.max_num_seqs={}"),
    "--dtype": ("--set", "llm_config.dtype={}"),
    "--num-workers": ("--set", "harness_config.replicas={}"),
}
REFUSED = {
    "--model-path": "the checkpoint stands in models/<benchmark>/benchmark.yaml, below build/models",
    "--dataset-path": "the data set stands in models/<benchmark>/benchmark.yaml, below build/data",
    "--output-log-dir": "each run has a directory of its own below build/logs",
    "--mlperf-conf": "mlperf.conf is compiled into LoadGen; targets stand in code/user_<gpu>.conf",
}

# Of NVIDIA's RUN_ARGS (inference_results_v5.1 closed/NVIDIA/README.md): words with a value, with one of some, without.
VALUED = {
    "--benchmarks": "--model",
    "--scenarios": "--scenarios",
    "--system_name": "--system-name",
    "--audit_test": "--tests",
}
CHOSEN: dict[str, dict[str, list[str]]] = {
    "--test_mode": {"PerformanceOnly": ["--tests", "performance"], "AccuracyOnly": ["--tests", "accuracy"]},
    "--config_ver": {"default": [], "high_accuracy": ["--high-accuracy"]},
}
FLAGS = {"--test_run": ["--profile", "fast"], "--fast": ["--profile", "fast"]}
RUN_ARGS = "--run-args"


def translate(arguments: Sequence[str]) -> list[str]:
    """Our own words for `arguments`; `--option value` and `--option=value` alike."""
    words: list[str] = []
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if name == RUN_ARGS:
            words += parse_run_args(value if equals else next(rest, ""))
        elif name in REFUSED:
            raise ConfigError(f"there is no option {name}", where="command line", hint=REFUSED[name])
        elif name in MAPPED:
            option, form = MAPPED[name]
            given = value if equals else next(rest, "")
            if not given:
                raise ConfigError(f"{name} wants a value", where="command line")
            words += [option, form.format(given)]
        else:
            words.append(word)
    return words


def parse_run_args(text: str) -> list[str]:
    """Our own words for what `make run RUN_ARGS="..."` says, as NVIDIA's harness understands it.

    Raises:
        ConfigError: a word has no counterpart here, or another value than it can have.
    """
    words: list[str] = []
    try:
        rest = iter(shlex.split(text))
    except ValueError as error:
        raise ConfigError("RUN_ARGS has a quote without its end", found=text) from error
    for word in rest:
        name, equals, value = word.partition("=")
        if word in FLAGS:
            words += FLAGS[word]
        elif name in VALUED or name in CHOSEN:
            words += _said(name, value if equals else next(rest, ""))
        else:
            raise ConfigError(
                f"{word if name in FLAGS else name} is no word of RUN_ARGS here",
                expected=", ".join((*VALUED, *CHOSEN, *FLAGS)),
                hint="settings of make: GPU_NAME, GPU_COUNT, ROUND, PROFILE, ENGINE ...; those of engines stand in "
                "models/<benchmark>/*.yaml",
            )
    return words


def _said(name: str, value: str) -> list[str]:
    if not value:
        raise ConfigError(f"{name} wants a value", where="RUN_ARGS")
    if name in VALUED:
        return [VALUED[name], value]
    if value not in CHOSEN[name]:
        raise ConfigError(f"{name} has no value {value} here", where="RUN_ARGS", expected=", ".join(CHOSEN[name]))
    return CHOSEN[name][value]
