"""Scores by the evaluators of the reference, run in a sandbox from a checkout of mlcommons/inference."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from harness_llm.accuracy import service
from harness_llm.accuracy.grading import (
    ENVIRONMENT,
    LIMIT_S,
    VARIABLES,
    Inputs,
    evaluator_of,
    make_folder,
    python_arguments,
)
from harness_llm.accuracy.jail import run_jailed
from harness_llm.accuracy.report import parse
from harness_llm.accuracy.sandbox import Finished
from harness_llm.accuracy.score import answers_by_index, token_counts
from harness_llm.check.official import CHECKOUT_VARIABLE, checkout
from harness_llm.errors import EnvironmentMissing, RunFailed
from harness_llm.loadgen.logs import read_accuracy_log
from harness_llm.workspace import ENVIRONMENTS, Workspace

PYTHON = ENVIRONMENTS / ENVIRONMENT / "bin" / "python"


def evaluate(method: str, inputs: Inputs, samples: int) -> dict[str, float]:
    """Score the answers of a log.

    Args:
        method: one of `grading.EVALUATORS`.
        samples: how many must have an answer.

    Returns:
        EXACT_MATCH (percent), TOKENS_PER_SAMPLE and GEN_NUM; the tokens are counted here where the script does not.

    Raises:
        EnvironmentMissing: the checkout, its packages or a sandbox are missing.
        ConfigError: the log is damaged or incomplete.
        RunFailed: the evaluator failed, or printed no score.
    """
    counts = token_counts(answers_by_index(read_accuracy_log(inputs.log), samples))
    done = _run(method, inputs)
    if done.code:
        raise RunFailed("the reference's evaluator failed", where=evaluator_of(method).script, found=_last_line(done))
    printed = parse(done.out)
    if "EXACT_MATCH" not in printed:
        raise RunFailed(
            "the reference's evaluator printed no score",
            where=evaluator_of(method).script,
            expected="'exact_match': …",
            found=_last_line(done),
        )
    return counts | printed


def require_evaluator(method: str) -> None:
    """Raise EnvironmentMissing where `evaluate` would, except for missing data; takes seconds."""
    done = _run(method, None)
    if done.code:
        raise EnvironmentMissing(
            "the reference's evaluator cannot work here",
            where=str(_checkout(method) / evaluator_of(method).script),
            expected="its packages, and its submodules LiveCodeBench and prm800k",
            found=_last_line(done),
            hint="make graders; in a checkout of mlcommons/inference: git submodule update --init --depth 1 "
            "language/deepseek-r1/submodules; for an image: bash setup/build_submission_env.sh",
        )


def _checkout(method: str) -> Path:
    folder = checkout(Workspace())
    script = evaluator_of(method).script
    if folder is None or not (folder / script).is_file():
        raise EnvironmentMissing(
            "these answers are scored by the reference's evaluator, which is missing",
            where=str(folder / script) if folder else CHECKOUT_VARIABLE,
            expected=f"{script} in a checkout of mlcommons/inference",
            found="no such file" if folder else "no checkout",
            hint=f"make build; or set {CHECKOUT_VARIABLE} to a checkout with submodules",
        )
    return folder.resolve()


def _run(method: str, inputs: Inputs | None) -> Finished:
    """Run the evaluator, or its trial without inputs, in the sandbox that is at hand."""
    evaluator, source = evaluator_of(method), _checkout(method)
    log, data = (str(inputs.log.resolve()), str(inputs.source.resolve())) if inputs else ("", "")
    with _scratch() as scratch:
        folder = scratch / "evaluator"
        make_folder(folder, evaluator, source, inputs)
        if service.is_offered():
            return Finished(*service.ask(service.Grade(method=method, folder=str(folder), log=log, source=data)))
        if not PYTHON.is_file():
            raise EnvironmentMissing("the packages of the graders are missing", where=str(PYTHON), hint="make graders")
        paths = [source, folder, PYTHON.parent.parent, Path(sys.base_prefix)]
        if inputs:
            files = (inputs.log, inputs.source, inputs.checkpoint, inputs.livecodebench)
            paths += [file for file in files if file]
        command = [str(PYTHON), *python_arguments(evaluator, str(folder), log, data)]
        return run_jailed(command, [path.resolve() for path in paths], VARIABLES, LIMIT_S, scratch)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder on the disk of the runs; a container of the scoring service shows it at the same place."""
    above = Workspace().build / "scoring"
    above.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=above) as folder:
        yield Path(folder).resolve()


def _last_line(done: Finished) -> str:
    return (done.err.strip() or f"exit code {done.code}").splitlines()[-1]
