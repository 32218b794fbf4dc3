"""accuracy.txt from the official accuracy script, compared with the scores that harness-llm computed.

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
from harness_llm.evaluate.official.output import OfficialOutput, from_harness, from_script, require_checkout
from harness_llm.evaluate.official.script_runner import cached_output, require_accuracy_script, run_accuracy_script
from harness_llm.evaluate.official.scripts import ACCURACY_SCRIPTS, Inputs, find_script
from harness_llm.protocol.token_store import open_store

_CONFIG = "tokenizer_config.json"
# Names of one tokenizer class in transformers 5, which trained the demo, and transformers 4, which the scripts use.
_CLASS_OF_5, _CLASS_OF_4 = "TokenizersBackend", "PreTrainedTokenizerFast"
_TOLERANCE = 1e-3  # the scripts print 4 digits, and sums of floats depend on their order
# Scripts of benchmarks with another name.
_SCRIPTS = {"llama2-70b-interactive": "llama2-70b", "llama3.1-8b-edge": "llama3.1-8b", "demo": "llama2-70b"}
_UNSUPPORTED = {
    "mixtral-8x7b": "its script runs programs in ten languages, whose compilers are only in the container of MBXP",
    "gptj": "its script downloads the model's tokenizer",
}


def script_of(benchmark: Benchmark) -> str | None:
    """Key in `ACCURACY_SCRIPTS` of the script that scores `benchmark`; None if there is none."""
    name = _SCRIPTS.get(benchmark.name, benchmark.name)
    return name if name in ACCURACY_SCRIPTS and benchmark.preparer != "stand-in" else None


def require_script(benchmark: Benchmark) -> str:
    """Check that the script can run, which takes seconds; return its path in the checkout.

    Raises:
        EnvironmentMissing: the checkout, the script or a package that it imports is missing.
    """
    name = _known_script(benchmark)
    require_accuracy_script(name)
    return find_script(name).path


def _known_script(benchmark: Benchmark) -> str:
    require_checkout()
    name = script_of(benchmark)
    if name is None:
        reason = _UNSUPPORTED.get(benchmark.name, "its data set is synthetic")
        raise EnvironmentMissing(f"no accuracy script of mlcommons/inference can score {benchmark.name}: {reason}")
    return name


def score_officially(
    benchmark: Benchmark, assets: Assets, log: Path, own: str, *, gated: Collection[str] = (), test: str = "accuracy"
) -> OfficialOutput:
    """Score a log with the official accuracy script; return `own` if the script cannot run.

    Args:
        log: mlperf_log_accuracy.json.
        own: accuracy.txt that harness-llm wrote.
        gated: metrics that the official checker reads.
        test: test of the run, which determines the data set.

    Raises:
        GateFailed: the scores of the script differ from those in `own`.
        RunFailed: the script failed.
        ConfigError: the official checker cannot read a metric of `gated` in the output.
    """
    try:
        name = _known_script(benchmark)
        with _source(assets, test) as source, _tokenizer(assets) as tokenizer:
            inputs = Inputs(log, source, tokenizer, assets.livecodebench)
            if not cached_output(name, inputs).is_file():
                require_accuracy_script(name)
            text = run_accuracy_script(name, inputs)
    except EnvironmentMissing as error:
        return from_harness(own, error)
    script = find_script(name).path
    _require_same(parse(own), parse(text, gated, script), log, script)
    return from_script(text, require_checkout(), script)


def _require_same(own: Mapping[str, float], official: Mapping[str, float], log: Path, script: str) -> None:
    found = [
        f"{metric}: {own[metric]:.10g} by harness-llm, {official[metric]:.10g} by the script"
        for metric in own.keys() & official.keys()
        if abs(own[metric] - official[metric]) > _TOLERANCE
    ]
    if found:
        raise GateFailed(
            "the official accuracy script computes other scores than harness-llm",
            where=f"{log}, {script}",
            expected="equal scores",
            found="\n         ".join(sorted(found)),
            hint="report this with both outputs; the results were not packaged",
        )


@contextmanager
def _source(assets: Assets, test: str) -> Iterator[Path]:
    """Yield the data set in the script's format; that of the demo, which is not published, is converted."""
    if assets.sources:
        yield assets.source(test)
        return
    import pandas as pd  # noqa: PLC0415 - 0.5 s

    with TemporaryDirectory() as folder:
        file = Path(folder, "source.pkl")
        frame = pd.DataFrame({"output": open_store(assets.store(test)).targets()}, dtype=object)
        frame.columns = pd.Index(["output"], dtype=object)  # pandas 2 cannot unpickle strings of pandas 3
        frame.to_pickle(file)
        yield file


@contextmanager
def _tokenizer(assets: Assets) -> Iterator[Path]:
    """Yield a folder with the tokenizer in the format of transformers 4; quantized checkpoints may lack its files."""
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
