"""Official accuracy scripts: command lines, and the folder with the files that a script imports and loads.

The scripts run unchanged, with the Python packages of `make graders`. LiveCodeBench executes model-generated programs
in processes of the script, so these scripts run in a sandbox (namespaces.py, or a container of the scoring service).

ROUGE scripts download the metric and nltk's punkt. The folder provides both without a network: `rouge/rouge.py`, which
`evaluate.load("rouge")` prefers to the hub (evaluate 0.4.6, loading.py, evaluation_module_factory), and `nltk_data`, to
which NLTK_DATA points.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness_llm.errors import ConfigError
from harness_llm.evaluate.sandbox import WATCH
from harness_llm.evaluate.sentence_splitter import PACKAGE, find_splitter
from harness_llm.fileio import only_own_writes

ENVIRONMENT = ".venv-graders"
LIMIT_S = 2 * 3600  # the scripts limit LiveCodeBench to 20 minutes
VARIABLES: Mapping[str, str] = {
    "HOME": "/tmp",  # noqa: S108 - a path in the sandbox
    "LANG": "C.UTF-8",
    "HF_HOME": "/tmp/huggingface",  # noqa: S108
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    # The scripts start one process per core; each would start one thread per core.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "USE_TORCH": "0",  # datasets and transformers ignore the stub modules of torch
}
"""Environment variables in a sandbox."""

TOKENIZER = "tokenizer"
_OUTPUT = ("--output-file", "/tmp/output")  # noqa: S108 - a required option whose file is not read
_METRIC = Path(__file__).with_name("rouge_metric.py")
# language/llama3.1-8b imports torch without using it. These stubs replace 700 MB: they have the names that the script
# imports, and the types that datasets 2.21 compares with (utils/_dill.py).
_TORCH_STUBS = {
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
class AccuracyScript:
    """An accuracy script of mlcommons/inference and its options.

    Attributes:
        path: path in the checkout.
        log: option for mlperf_log_accuracy.json.
        source: option for the published data set.
        options: further options.
        tokenizer: name that the script passes to transformers: a repository of the hub, or a folder from `options`.
        program: Python code that imports and runs the script.
        trial: Python code that fails if a grader cannot work; the script itself counts that as a wrong answer.
        executes: whether the script executes model-generated programs.
    """

    path: str
    log: str
    source: str
    options: tuple[str, ...]
    tokenizer: str
    program: str
    trial: str
    executes: bool = True


def _rouge(path: str, tokenizer: str) -> AccuracyScript:
    """A ROUGE script; `tokenizer` is its option for the tokenizer's folder."""
    name = path.rpartition("/")[2]
    run = f"import runpy\nrunpy.run_path({name!r}, run_name="
    return AccuracyScript(
        path=path,
        log="--mlperf-accuracy-file",
        source="--dataset-file",
        # The harness logs token ids as int32, which the compliance tests expect.
        options=("--dtype", "int32", tokenizer, TOKENIZER),
        tokenizer=TOKENIZER,
        program=f"{run}'__main__')\n",
        trial=f"{run}'trial')\n{_TRY_ROUGE}",
        executes=False,
    )


ACCURACY_SCRIPTS = {
    "llama2-70b": _rouge("language/llama2-70b/evaluate-accuracy.py", "--checkpoint-path"),
    "llama3.1-405b": _rouge("language/llama3.1-405b/evaluate-accuracy.py", "--checkpoint-path"),
    "llama3.1-8b": _rouge("language/llama3.1-8b/evaluation.py", "--model-name"),
    "deepseek-r1": AccuracyScript(
        path="language/deepseek-r1/eval_accuracy.py",
        log="--input-file",
        source="--dataset-file",
        options=_OUTPUT,
        tokenizer="deepseek-ai/DeepSeek-R1",
        # Loaded before the script forks processes, which share it; each copy has several GB.
        program="import eval_accuracy as e\nassert e.load_lcb_benchmark()\ne.main()\n",
        trial=f"import eval_accuracy as e\nassert e.evaluate_math500('1', '1')\n{_LIVE_CODE_BENCH}",
    ),
    "gpt-oss-120b": AccuracyScript(
        path="language/gpt-oss-120b/eval_mlperf_accuracy.py",
        log="--mlperf-log",
        source="--reference-data",
        options=_OUTPUT,
        tokenizer="openai/gpt-oss-120b",
        program="import eval_mlperf_accuracy as e\ne.main()\n",
        trial=f"import eval_mlperf_accuracy as e\n{_LIVE_CODE_BENCH}",
    ),
}
"""Scripts by scoring method, or by the name of a benchmark that harness-llm also scores itself."""


def find_script(method: str) -> AccuracyScript:
    """Return the script of a scoring method; raise ConfigError if there is none."""
    if method not in ACCURACY_SCRIPTS:
        raise ConfigError("unknown accuracy script", expected=", ".join(ACCURACY_SCRIPTS), found=method)
    return ACCURACY_SCRIPTS[method]


@dataclass(frozen=True)
class Inputs:
    """Input files of an accuracy script.

    Attributes:
        log: mlperf_log_accuracy.json.
        source: the published data set.
        checkpoint: folder with the tokenizer.
        livecodebench: LiveCodeBench's data set; None if the script does not use it.
    """

    log: Path
    source: Path
    checkpoint: Path
    livecodebench: Path | None


def make_folder(folder: Path, script: AccuracyScript, checkout: Path, inputs: Inputs | None) -> None:
    """Fill the folder in which a script runs with the files that it imports and loads.

    Args:
        inputs: None for a trial.

    Raises:
        EnvironmentMissing: nltk's sentence splitter, which the script loads, is missing.
    """
    path = checkout.resolve() / script.path
    links = {folder / file.name: file for file in path.parent.glob("*.py")}
    if script.executes:
        links |= _submodule_links(folder, path.parent / "submodules")
    else:
        _copy_downloads(folder)
    if inputs:
        links[folder / script.tokenizer] = inputs.checkpoint.resolve()
        if inputs.livecodebench:
            links[_livecodebench(folder) / "livecodebench" / "code_generation_lite"] = inputs.livecodebench.resolve()
    for link, target in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def _submodule_links(folder: Path, modules: Path) -> dict[Path, Path]:
    """Links to prm800k and LiveCodeBench.

    The script loads data from LiveCodeBench's folder: `load_dataset("livecodebench/code_generation_lite")` and
    transformers prefer a folder of that name in the working directory to the hub (datasets 2.21,
    dataset_module_factory).
    """
    return {
        folder / "submodules" / "prm800k": (modules / "prm800k").resolve(),
        _livecodebench(folder) / "lcb_runner": (modules / "LiveCodeBench" / "lcb_runner").resolve(),
    }


def _livecodebench(folder: Path) -> Path:
    return folder / "submodules" / "LiveCodeBench"


def _copy_downloads(folder: Path) -> None:
    """Copy the files that ROUGE scripts would download; nltk refuses links that leave its data folder (pathsec)."""
    language = Path("tokenizers", PACKAGE, "english")
    with only_own_writes():  # nltk reads no others
        shutil.copytree(find_splitter() / language.name, folder / "nltk_data" / language)
    for name, text in {"rouge/rouge.py": _METRIC.read_text(), **_TORCH_STUBS}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def python_arguments(script: AccuracyScript, folder: str, log: str, source: str) -> list[str]:
    """Arguments of Python that run a script in `folder`, or its trial if `log` is empty."""
    if not log:
        return ["-c", _START + script.trial, folder]
    options = [script.log, log, script.source, source, *script.options]
    return ["-c", _START + script.program, folder, *options]
