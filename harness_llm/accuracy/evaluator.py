"""The reference's own evaluators, for answers that take its graders; run from a checkout of mlcommons/inference."""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness_llm.accuracy.report import parse
from harness_llm.accuracy.score import answers_by_index, token_counts
from harness_llm.check.official import CHECKOUT_VARIABLE
from harness_llm.errors import EnvironmentMissing, RunFailed
from harness_llm.loadgen.logs import read_accuracy_log

_LIVE_CODE_BENCH = "import eval_accuracy as e; assert e.load_lcb_benchmark(); import lcb_runner.evaluation"


@dataclass(frozen=True)
class Evaluator:
    """One script of the checkout, and the names of its options.

    Attributes:
        log: of mlperf_log_accuracy.json.
        source: of the data set as it was published.
        output: of a file that nobody needs.
        tokenizer: the hub's name for it, which the script gives to transformers.
        requirements: its packages, a file beside it.
        rehearsal: what its graders must manage beforehand, since the script takes what they fail at for wrong answers.
    """

    script: str
    log: str
    source: str
    output: str
    tokenizer: str
    requirements: str
    rehearsal: str


EVALUATORS = {
    "deepseek-r1": Evaluator(
        script="language/deepseek-r1/eval_accuracy.py",
        log="--input-file",
        source="--dataset-file",
        output="--output-file",
        tokenizer="deepseek-ai/DeepSeek-R1",
        requirements="docker/evaluation_requirements.txt",
        rehearsal=f"{_LIVE_CODE_BENCH}; assert e.evaluate_math500('1', '1')",
    ),
    "gpt-oss-120b": Evaluator(
        script="language/gpt-oss-120b/eval_mlperf_accuracy.py",
        log="--mlperf-log",
        source="--reference-data",
        output="--output-file",
        tokenizer="openai/gpt-oss-120b",
        requirements="requirements.txt",
        rehearsal=_LIVE_CODE_BENCH,
    ),
}
"""By scoring method."""


def evaluate(method: str, log: Path, source: Path, checkpoint: Path, samples: int) -> dict[str, float]:
    """Score the answers of a log.

    Args:
        method: one of `EVALUATORS`.
        log: mlperf_log_accuracy.json.
        source: the data set as it was published.
        checkpoint: a folder with the tokenizer.
        samples: how many must have an answer.

    Returns:
        EXACT_MATCH (percent), TOKENS_PER_SAMPLE and GEN_NUM; the tokens are counted here where the script does not.

    Raises:
        EnvironmentMissing: there is no checkout, or it lacks what its evaluator needs.
        ConfigError: the log is damaged or incomplete.
        RunFailed: the evaluator failed, or printed no score.
    """
    evaluator = EVALUATORS[method]
    script = _script(evaluator)
    counts = token_counts(answers_by_index(read_accuracy_log(log), samples))
    _rehearse(evaluator, script)
    printed = parse(_run(evaluator, script, log.resolve(), source.resolve(), checkpoint.resolve()))
    if "EXACT_MATCH" not in printed:
        raise RunFailed("the reference's evaluator printed no score", where=str(script), expected="'exact_match': …")
    return counts | printed


def require_evaluator(method: str) -> None:
    """Raise EnvironmentMissing where `evaluate` would; takes seconds."""
    _rehearse(EVALUATORS[method], _script(EVALUATORS[method]))


def _script(evaluator: Evaluator) -> Path:
    checkout = os.environ.get(CHECKOUT_VARIABLE, "")
    script = Path(checkout, evaluator.script).resolve()
    if not checkout or not script.is_file():
        raise EnvironmentMissing(
            "these answers are scored by the reference's evaluator, which is not there",
            where=str(script) if checkout else CHECKOUT_VARIABLE,
            expected=f"{evaluator.script} in a checkout of mlcommons/inference",
            found="no such file" if checkout else "it is not set",
            hint="git clone --recurse-submodules https://github.com/mlcommons/inference, "
            f"and set {CHECKOUT_VARIABLE} to it",
        )
    return script


def _rehearse(evaluator: Evaluator, script: Path) -> None:
    done = _python(["-c", evaluator.rehearsal], script.parent)
    if done.returncode:
        raise EnvironmentMissing(
            "the reference's evaluator cannot work here",
            where=str(script),
            expected="its packages, its submodules, and LiveCodeBench's data",
            found=_last_line(done),
            hint=f"cd {script.parent} && git submodule update --init ../deepseek-r1/submodules && "
            f"{sys.executable} -m pip install -r {evaluator.requirements}",
        )


def _run(evaluator: Evaluator, script: Path, log: Path, source: Path, checkpoint: Path) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        # transformers prefers a folder of that name to the hub; not every script can be told another one.
        tokenizer = Path(scratch, evaluator.tokenizer)
        tokenizer.parent.mkdir(parents=True)
        tokenizer.symlink_to(checkpoint, target_is_directory=True)
        options = {evaluator.log: log, evaluator.source: source, evaluator.output: Path(scratch, "output")}
        done = _python([str(script), *(str(word) for option in options.items() for word in option)], Path(scratch))
    if done.returncode:
        raise RunFailed("the reference's evaluator failed", where=str(script), found=_last_line(done))
    return done.stdout


def _python(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    # -B leaves the checkout as it is.
    return subprocess.run([sys.executable, "-B", *arguments], cwd=folder, capture_output=True, text=True, check=False)


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
