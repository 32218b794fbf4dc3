"""The evaluators of the reference: how each script is run, unchanged, in a folder where it finds what it loads.

LiveCodeBench runs programs that the model wrote, in processes of the evaluator. So the whole evaluator runs in a
sandbox (`jail`, or a container that the scoring service starts), with Python packages of its own (`make graders`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness_llm.accuracy.sandbox import WATCH
from harness_llm.errors import ConfigError

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
}
"""Environment variables in a sandbox."""

_OUTPUT = "/tmp/output"  # noqa: S108
_START = f"{WATCH}\nimport sys\nos.chdir(sys.argv.pop(1))\n"
_LIVE_CODE_BENCH = """
folder = os.path.abspath("submodules/LiveCodeBench")
os.chdir(folder)
sys.path.insert(0, folder)
import lcb_runner.runner.scenario_router
"""


@dataclass(frozen=True)
class Evaluator:
    """One script of a checkout of mlcommons/inference, and the names of its options.

    Attributes:
        log: option for mlperf_log_accuracy.json.
        source: option for the data set as it was published.
        output: option for a file that is not used here.
        tokenizer: name on the hub that the script gives to transformers.
        program: Python code that imports and runs the script.
        trial: Python code that fails where graders cannot work; the script counts their failures as wrong answers.
    """

    script: str
    log: str
    source: str
    output: str
    tokenizer: str
    program: str
    trial: str


EVALUATORS = {
    "deepseek-r1": Evaluator(
        script="language/deepseek-r1/eval_accuracy.py",
        log="--input-file",
        source="--dataset-file",
        output="--output-file",
        tokenizer="deepseek-ai/DeepSeek-R1",
        # Loaded once before processes are forked; each would load several GB of its own.
        program="import eval_accuracy as e\nassert e.load_lcb_benchmark()\ne.main()\n",
        trial=f"import eval_accuracy as e\nassert e.evaluate_math500('1', '1')\n{_LIVE_CODE_BENCH}",
    ),
    "gpt-oss-120b": Evaluator(
        script="language/gpt-oss-120b/eval_mlperf_accuracy.py",
        log="--mlperf-log",
        source="--reference-data",
        output="--output-file",
        tokenizer="openai/gpt-oss-120b",
        program="import eval_mlperf_accuracy as e\ne.main()\n",
        trial=f"import eval_mlperf_accuracy as e\n{_LIVE_CODE_BENCH}",
    ),
}
"""By scoring method."""


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
    """Fill the folder in which an evaluator runs with links to what it imports and loads.

    `load_dataset("livecodebench/code_generation_lite")` prefers a folder of that name below the current one to the hub
    (datasets 2.21, dataset_module_factory), and the script loads from LiveCodeBench's folder. transformers prefers such
    a folder too.

    Args:
        inputs: None for a trial.
    """
    script = checkout.resolve() / evaluator.script
    modules, benchmark = script.parent / "submodules", folder / "submodules" / "LiveCodeBench"
    links = {folder / file.name: file for file in script.parent.glob("*.py")}
    links[folder / "submodules" / "prm800k"] = (modules / "prm800k").resolve()
    links[benchmark / "lcb_runner"] = (modules / "LiveCodeBench" / "lcb_runner").resolve()
    if inputs:
        links[folder / evaluator.tokenizer] = inputs.checkpoint.resolve()
        if inputs.livecodebench:
            links[benchmark / "livecodebench" / "code_generation_lite"] = inputs.livecodebench.resolve()
    for link, target in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def python_arguments(evaluator: Evaluator, folder: str, log: str, source: str) -> list[str]:
    """Arguments of the graders' Python that run an evaluator in `folder`, or its trial where there is no log."""
    if not log:
        return ["-c", _START + evaluator.trial, folder]
    options = [evaluator.log, log, evaluator.source, source, evaluator.output, _OUTPUT]
    return ["-c", _START + evaluator.program, folder, *options]
