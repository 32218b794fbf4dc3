"""The accuracy scripts of the reference: how each is run, unchanged, in a folder where it finds what it loads.

LiveCodeBench runs programs that the model wrote, in processes of the script. So such a script runs in a sandbox
(`jail`, or a container that the scoring service starts). All have Python packages of their own (`make graders`).

Scripts of ROUGE load the metric from a hub and nltk's punkt from another one. They get both without a network: the
folder has `rouge/rouge.py`, which `evaluate.load("rouge")` prefers to the hub (evaluate 0.4.6, loading.py,
evaluation_module_factory), and `nltk_data`, which NLTK_DATA names.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness_llm.errors import ConfigError
from harness_llm.evaluate.sandbox import WATCH
from harness_llm.evaluate.sentence_splitter import PACKAGE, find_splitter

ENVIRONMENT = ".venv-graders"
LIMIT_S = 2 * 3600  # the scripts give LiveCodeBench 20 minutes
VARIABLES: Mapping[str, str] = {
    "HOME": "/tmp",  # noqa: S108 - the sandbox's own
    "LANG": "C.UTF-8",
    "HF_HOME": "/tmp/huggingface",  # noqa: S108
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    # A process per core is started; each would start a thread per core.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "USE_TORCH": "0",  # datasets and transformers ignore the empty modules of that name
}
"""Environment variables in a sandbox."""

TOKENIZER = "tokenizer"
_OUTPUT = ("--output-file", "/tmp/output")  # noqa: S108 - not used here
_METRIC = Path(__file__).with_name("rouge_metric.py")
# language/llama3.1-8b imports torch and uses nothing of it, so that 700 MB are spared: these are the names that the
# script imports, and those that datasets 2.21 compares types with where torch was imported (utils/_dill.py).
_UNUSED = {
    "torch/__init__.py": "from torch import nn\nclass Tensor: ...\nclass Generator: ...\n",
    "torch/nn/__init__.py": "class Module: ...\n",
    "torch/nn/functional.py": "pad = None\n",
    "torch/utils/__init__.py": "",
    "torch/utils/data.py": "DataLoader = None\n",
}
_START = f"{WATCH}\nimport sys\nos.chdir(sys.argv.pop(1))\nos.environ['NLTK_DATA'] = os.path.abspath('nltk_data')\n"
_LIVE_CODE_BENCH = """
folder = os.path.abspath("submodules/LiveCodeBench")
os.chdir(folder)
sys.path.insert(0, folder)
import lcb_runner.runner.scenario_router
"""


_TRY_ROUGE = """
import evaluate, nltk
nltk.sent_tokenize("One. Two.")
metric = evaluate.load("rouge")
assert metric.compute(predictions=["one"], references=["one"], use_stemmer=True, use_aggregator=False)["rouge1"] == [1]
"""


@dataclass(frozen=True)
class Evaluator:
    """One script of a checkout of mlcommons/inference, and the names of its options.

    Attributes:
        log: option for mlperf_log_accuracy.json.
        source: option for the data set as it was published.
        options: further options.
        tokenizer: the name that the script gives to transformers: on the hub, or of `options`.
        program: Python code that imports and runs the script.
        trial: Python code that fails where graders cannot work; the script counts their failures as wrong answers.
        executes: whether it executes programs that the model wrote.
    """

    script: str
    log: str
    source: str
    options: tuple[str, ...]
    tokenizer: str
    program: str
    trial: str
    executes: bool = True


def _rouge(script: str, tokenizer: str) -> Evaluator:
    """A script that scores texts; `tokenizer` is its option for the folder of the tokenizer."""
    name = script.rpartition("/")[2]
    run = f"import runpy\nrunpy.run_path({name!r}, run_name="
    return Evaluator(
        script=script,
        log="--mlperf-accuracy-file",
        source="--dataset-file",
        # The harness logs token ids as int32, as the compliance tests expect them.
        options=("--dtype", "int32", tokenizer, TOKENIZER),
        tokenizer=TOKENIZER,
        program=f"{run}'__main__')\n",
        trial=f"{run}'trial')\n{_TRY_ROUGE}",
        executes=False,
    )


EVALUATORS = {
    "llama2-70b": _rouge("language/llama2-70b/evaluate-accuracy.py", "--checkpoint-path"),
    "llama3.1-405b": _rouge("language/llama3.1-405b/evaluate-accuracy.py", "--checkpoint-path"),
    "llama3.1-8b": _rouge("language/llama3.1-8b/evaluation.py", "--model-name"),
    "deepseek-r1": Evaluator(
        script="language/deepseek-r1/eval_accuracy.py",
        log="--input-file",
        source="--dataset-file",
        options=_OUTPUT,
        tokenizer="deepseek-ai/DeepSeek-R1",
        # Loaded once before processes are forked; each would load several GB of its own.
        program="import eval_accuracy as e\nassert e.load_lcb_benchmark()\ne.main()\n",
        trial=f"import eval_accuracy as e\nassert e.evaluate_math500('1', '1')\n{_LIVE_CODE_BENCH}",
    ),
    "gpt-oss-120b": Evaluator(
        script="language/gpt-oss-120b/eval_mlperf_accuracy.py",
        log="--mlperf-log",
        source="--reference-data",
        options=_OUTPUT,
        tokenizer="openai/gpt-oss-120b",
        program="import eval_mlperf_accuracy as e\ne.main()\n",
        trial=f"import eval_mlperf_accuracy as e\n{_LIVE_CODE_BENCH}",
    ),
}
"""By scoring method, or by the benchmark whose answers harness-llm scores itself too."""


def evaluator_of(method: str) -> Evaluator:
    """The evaluator of a scoring method; raises ConfigError where it has none."""
    if method not in EVALUATORS:
        raise ConfigError("unknown evaluator", expected=", ".join(EVALUATORS), found=method)
    return EVALUATORS[method]


@dataclass(frozen=True)
class Inputs:
    """What an evaluator scores.

    Attributes:
        log: mlperf_log_accuracy.json.
        source: the data set as it was published.
        checkpoint: a folder with the tokenizer.
        livecodebench: LiveCodeBench's data set, as it was downloaded; None where no answer needs it.
    """

    log: Path
    source: Path
    checkpoint: Path
    livecodebench: Path | None


def make_folder(folder: Path, evaluator: Evaluator, checkout: Path, inputs: Inputs | None) -> None:
    """Fill the folder in which an evaluator runs with what it imports and loads.

    Args:
        inputs: None for a trial.

    Raises:
        EnvironmentMissing: nltk's sentence splitter, which the script loads, is not here.
    """
    script = checkout.resolve() / evaluator.script
    links = {folder / file.name: file for file in script.parent.glob("*.py")}
    if evaluator.executes:
        links |= _graders(folder, script.parent / "submodules")
    else:
        _copy_hubs(folder)
    if inputs:
        links[folder / evaluator.tokenizer] = inputs.checkpoint.resolve()
        if inputs.livecodebench:
            links[_benchmark(folder) / "livecodebench" / "code_generation_lite"] = inputs.livecodebench.resolve()
    for link, target in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def _graders(folder: Path, modules: Path) -> dict[Path, Path]:
    """Links to the graders.

    `load_dataset("livecodebench/code_generation_lite")` prefers a folder of that name below the current one to the hub
    (datasets 2.21, dataset_module_factory), and the script loads from LiveCodeBench's folder. transformers prefers such
    a folder too.
    """
    return {
        folder / "submodules" / "prm800k": (modules / "prm800k").resolve(),
        _benchmark(folder) / "lcb_runner": (modules / "LiveCodeBench" / "lcb_runner").resolve(),
    }


def _benchmark(folder: Path) -> Path:
    return folder / "submodules" / "LiveCodeBench"


def _copy_hubs(folder: Path) -> None:
    """What scripts of ROUGE load from hubs; nltk refuses links that lead out of its data (pathsec)."""
    language = Path("tokenizers", PACKAGE, "english")
    shutil.copytree(find_splitter() / language.name, folder / "nltk_data" / language)
    for name, text in {"rouge/rouge.py": _METRIC.read_text(), **_UNUSED}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def python_arguments(evaluator: Evaluator, folder: str, log: str, source: str) -> list[str]:
    """Arguments of the graders' Python that run an evaluator in `folder`, or its trial where there is no log."""
    if not log:
        return ["-c", _START + evaluator.trial, folder]
    options = [evaluator.log, log, evaluator.source, source, *evaluator.options]
    return ["-c", _START + evaluator.program, folder, *options]
