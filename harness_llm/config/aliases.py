"""Aliases: options of other harnesses, replaced by the options of harness-llm or refused with a hint."""

import shlex
from collections.abc import Sequence

from harness_llm.errors import ConfigError

# Options of the reference's scripts.
MAPPED = {
    "--scenario": ("--scenarios", "{}"),
    "--device": ("--gpu", "{}"),
    "--tensor-parallel-size": ("--set", "llm_config.tensor_parallel_size={}"),
    "--batch-size": ("--set", "llm_config.max_num_seqs={}"),
    "--dtype": ("--set", "llm_config.dtype={}"),
    "--num-workers": ("--set", "harness_config.replicas={}"),
}
REFUSED = {
    "--model-path": "models/<benchmark>/benchmark.yaml names the checkpoint, a folder of build/models",
    "--dataset-path": "models/<benchmark>/benchmark.yaml names the data set, a file below build/data",
    "--output-log-dir": "each run has a directory of its own below build/logs",
    "--mlperf-conf": "mlperf.conf is compiled into LoadGen; targets are in code/user_<gpu>.conf",
}

# NVIDIA's RUN_ARGS (inference_results_v5.1 closed/NVIDIA/README.md): options with any value, with one of some values,
# and without a value.
VALUED = {
    "--benchmarks": "--model",
    "--scenarios": "--scenarios",
    "--system_name": "--system-name",
    "--audit_test": "--tests",
}
CHOICES: dict[str, dict[str, list[str]]] = {
    "--test_mode": {"PerformanceOnly": ["--tests", "performance"], "AccuracyOnly": ["--tests", "accuracy"]},
    "--config_ver": {"default": [], "high_accuracy": ["--high-accuracy"]},
}
FLAGS = {"--test_run": ["--profile", "fast"], "--fast": ["--profile", "fast"]}
RUN_ARGS = "--run-args"


def translate(arguments: Sequence[str]) -> list[str]:
    """Replace the aliases in `arguments`, in the forms `--option value` and `--option=value`.

    Raises:
        ConfigError: an alias has no counterpart, or no value.
    """
    translated: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name == RUN_ARGS:
            translated += parse_run_args(value if equals else next(rest, ""))
        elif name in REFUSED:
            raise ConfigError(f"unknown option {name}", where="command line", hint=REFUSED[name])
        elif name in MAPPED:
            option, form = MAPPED[name]
            translated += [option, form.format(_require(value if equals else next(rest, ""), name, "command line"))]
        else:
            translated.append(argument)
    return translated


def parse_run_args(text: str) -> list[str]:
    """Translate NVIDIA's `make run RUN_ARGS="..."`.

    Raises:
        ConfigError: an option or its value has no counterpart.
    """
    translated: list[str] = []
    try:
        rest = iter(shlex.split(text))
    except ValueError as error:
        raise ConfigError("RUN_ARGS has a quote without its end", found=text) from error
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument in FLAGS:
            translated += FLAGS[argument]
        elif name in VALUED or name in CHOICES:
            translated += _with_value(name, _require(value if equals else next(rest, ""), name, "RUN_ARGS"))
        else:
            raise ConfigError(
                f"unknown option {argument if name in FLAGS else name} in RUN_ARGS",
                expected=", ".join((*VALUED, *CHOICES, *FLAGS)),
                hint="settings of make: GPU_NAME, GPU_COUNT, ROUND, PROFILE, ENGINE ...; engine settings are in "
                "models/<benchmark>/*.yaml",
            )
    return translated


def _require(value: str, name: str, where: str) -> str:
    if not value:
        raise ConfigError(f"missing value of {name}", where=where)
    return value


def _with_value(name: str, value: str) -> list[str]:
    if name in VALUED:
        return [VALUED[name], value]
    if value not in CHOICES[name]:
        raise ConfigError(f"invalid {name} {value}", where="RUN_ARGS", expected=", ".join(CHOICES[name]))
    return CHOICES[name][value]
