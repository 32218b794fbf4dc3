"""Options that users of other harnesses type: each becomes one of ours, or is refused with what takes its place."""

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


def translate(arguments: Sequence[str]) -> list[str]:
    """Our own words for `arguments`; `--option value` and `--option=value` alike."""
    words: list[str] = []
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in REFUSED:
            raise ConfigError(f"there is no option {name}", where="command line", hint=REFUSED[name])
        if name in MAPPED:
            option, form = MAPPED[name]
            given = value if equals else next(rest, "")
            if not given:
                raise ConfigError(f"{name} wants a value", where="command line")
            words += [option, form.format(given)]
        else:
            words.append(word)
    return words
