"""accuracy.txt by the reference's own script, held against the scores that harness-llm computed.

"accuracy.txt # stdout of reference accuracy scripts" (policies, submission_rules:390).
"""

import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from harness_llm.config.assets import Assets
from harness_llm.config.benchmark import Benchmark
from harness_llm.errors import EnvironmentMissing, GateFailed
from harness_llm.evaluate.accuracy_file import parse
from harness_llm.evaluate.official.output import OfficialOutput, by_script, ours, require_checkout
from harness_llm.evaluate.official.script_runner import kept_output, require_evaluator, run_evaluator
from harness_llm.evaluate.official.scripts import EVALUATORS, Inputs, evaluator_of
from harness_llm.protocol.token_store import open_store

_CONFIG = "tokenizer_config.json"
# The same class of tokenizers in transformers 5, which trained the demo, and in transformers 4, which the scripts use.
_CLASS_OF_5, _CLASS_OF_4 = "TokenizersBackend", "PreTrainedTokenizerFast"
_ROUNDED = 1e-3  # the scripts print 4 digits; sums of floats differ by their order
# The script of a benchmark, where it is not that of the same name.
_SCRIPTS = {"llama2-70b-interactive": "llama2-70b", "llama3.1-8b-edge": "llama3.1-8b", "demo": "llama2-70b"}
_NONE = {
    "mixtral-8x7b": "its script executes programs of ten languages, whose compilers are in the container of MBXP alone",
    "gptj": "its script loads the model's tokenizer from the hub",
}


def script_of(benchmark: Benchmark) -> str | None:
    """The key in `EVALUATORS` of the script that scores `benchmark`; None where none can."""
    name = _SCRIPTS.get(benchmark.name, benchmark.name)
    return name if name in EVALUATORS and benchmark.preparer != "stand-in" else None


def require_script(benchmark: Benchmark) -> str:
    """Check that the script can run; takes seconds. Returns its path in the checkout.

    Raises:
        EnvironmentMissing: there is no checkout, no script, or what the script imports is missing.
    """
    name = _known_script(benchmark)
    require_evaluator(name)
    return evaluator_of(name).script


def _known_script(benchmark: Benchmark) -> str:
    require_checkout()
    name = script_of(benchmark)
    if name is None:
        reason = _NONE.get(benchmark.name, "its data set is made up")
        raise EnvironmentMissing(f"no accuracy script of mlcommons/inference can score {benchmark.name}: {reason}")
    return name


def score_officially(
    benchmark: Benchmark, assets: Assets, log: Path, own: str, *, gated: Collection[str] = (), test: str = "accuracy"
) -> OfficialOutput:
    """The output of the reference's script on a log; our own text where the script cannot run.

    Args:
        log: mlperf_log_accuracy.json.
        own: accuracy.txt as harness-llm wrote it.
        gated: metrics that the submission checker reads.
        test: of the run, which decides the data set.

    Raises:
        GateFailed: the script scores the answers otherwise.
        RunFailed: the script failed.
        ConfigError: the submission checker cannot read a metric of `gated` in the output.
    """
    try:
        name = _known_script(benchmark)
        with _source(assets, test) as source, _tokenizer(assets) as tokenizer:
            inputs = Inputs(log, source, tokenizer, assets.livecodebench)
            if not kept_output(name, inputs).is_file():
                require_evaluator(name)
            text = run_evaluator(name, inputs)
    except EnvironmentMissing as error:
        return ours(own, error)
    script = evaluator_of(name).script
    _require_same(parse(own), parse(text, gated, script), log, script)
    return by_script(text, require_checkout(), script)


def _require_same(own: Mapping[str, float], official: Mapping[str, float], log: Path, script: str) -> None:
    found = [
        f"{metric}: {own[metric]:.10g} by harness-llm, {official[metric]:.10g} by the script"
        for metric in own.keys() & official.keys()
        if abs(own[metric] - official[metric]) > _ROUNDED
    ]
    if found:
        raise GateFailed(
            "the reference's script scores the answers otherwise than harness-llm",
            where=f"{log}, {script}",
            expected="equal scores",
            found="\n         ".join(sorted(found)),
            hint="report it, with both outputs; nothing was packaged",
        )


@contextmanager
def _source(assets: Assets, test: str) -> Iterator[Path]:
    """The data set as the script reads it; the demo's, which is published nowhere, is written in that form."""
    if assets.sources:
        yield assets.source(test)
        return
    import pandas as pd  # noqa: PLC0415 - 0.5 s

    with TemporaryDirectory() as folder:
        file = Path(folder, "source.pkl")
        frame = pd.DataFrame({"output": open_store(assets.store(test)).targets()}, dtype=object)
        frame.columns = pd.Index(["output"], dtype=object)  # the script's pandas does not read texts of pandas 3
        frame.to_pickle(file)
        yield file


@contextmanager
def _tokenizer(assets: Assets) -> Iterator[Path]:
    """A folder with the tokenizer as transformers 4 reads it; a quantized checkpoint may lack files of it."""
    folders = (assets.original, assets.checkpoint)
    folder = next((folder for folder in folders if (folder / _CONFIG).is_file()), assets.checkpoint)
    config = json.loads((folder / _CONFIG).read_text()) if (folder / _CONFIG).is_file() else {}
    if config.get("tokenizer_class") != _CLASS_OF_5:
        yield folder
        return
    with TemporaryDirectory() as made:
        shutil.copy(folder / "tokenizer.json", made)
        Path(made, _CONFIG).write_text(json.dumps(config | {"tokenizer_class": _CLASS_OF_4}))
        yield Path(made)
