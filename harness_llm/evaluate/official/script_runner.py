"""Scores by the evaluators of the reference, run from a checkout of mlcommons/inference; in a sandbox where needed."""

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from harness_llm.config.checkpoint import file_digest
from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE, checkout
from harness_llm.errors import EnvironmentMissing, RunFailed
from harness_llm.evaluate import scoring_service as service
from harness_llm.evaluate.accuracy_file import parse
from harness_llm.evaluate.official.namespaces import run_jailed
from harness_llm.evaluate.official.scripts import (
    ENVIRONMENT,
    LIMIT_S,
    VARIABLES,
    Inputs,
    evaluator_of,
    make_folder,
    python_arguments,
)
from harness_llm.evaluate.sandbox import Finished, run_sandboxed, with_variables
from harness_llm.evaluate.score import answers_by_index, token_counts
from harness_llm.fileio import write_atomically
from harness_llm.loadgen.logs import read_accuracy_log
from harness_llm.paths import ENVIRONMENTS, Workspace

# Nothing listens there, so that nltk.download, which scripts of ROUGE call, fails at once where packets are dropped.
_NO_PROXY = "http://127.0.0.1:9"

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
    out = run_evaluator(method, inputs)
    printed = parse(out)
    if "EXACT_MATCH" not in printed:
        raise RunFailed(
            "the reference's evaluator printed no score",
            where=evaluator_of(method).script,
            expected="'exact_match': …",
            found=(out.splitlines() or ["nothing"])[-1],
        )
    return counts | printed


def run_evaluator(method: str, inputs: Inputs) -> str:
    """The output of an evaluator; kept below build/, so that the same log is scored once.

    Raises:
        EnvironmentMissing: the checkout, its packages or a sandbox are missing.
        RunFailed: the evaluator failed.
    """
    kept = kept_output(method, inputs)
    if kept.is_file():
        return kept.read_text()
    done = _run(method, inputs)
    if done.code:
        raise RunFailed("the reference's evaluator failed", where=evaluator_of(method).script, found=_last_line(done))
    kept.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(kept) as temporary:
        temporary.write_text(done.out)
    return done.out


def kept_output(method: str, inputs: Inputs) -> Path:
    """Where the output of an evaluator is kept; raises EnvironmentMissing without a checkout."""
    files = (_checkout(method) / evaluator_of(method).script, inputs.log, inputs.source)
    digests = json.dumps([file_digest(file) for file in files])
    return Workspace().build / "official" / f"{hashlib.sha256(digests.encode()).hexdigest()}.txt"


def require_evaluator(method: str) -> None:
    """Raise EnvironmentMissing where `evaluate` would, except for missing data; takes seconds."""
    done = _run(method, None)
    if done.code:
        raise EnvironmentMissing(
            "the reference's evaluator cannot work here",
            where=str(_checkout(method) / evaluator_of(method).script),
            expected="its packages, and the submodules LiveCodeBench and prm800k of those that execute programs",
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
        if service.is_offered() and evaluator.executes:
            return Finished(*service.ask(service.Grade(method=method, folder=str(folder), log=log, source=data)))
        if not PYTHON.is_file():
            raise EnvironmentMissing("the packages of the graders are missing", where=str(PYTHON), hint="make graders")
        paths = [source, folder, PYTHON.parent.parent, Path(sys.base_prefix)]
        if inputs:
            files = (inputs.log, inputs.source, inputs.checkpoint, inputs.livecodebench)
            paths += [file for file in files if file]
        command = [str(PYTHON), *python_arguments(evaluator, str(folder), log, data)]
        if not evaluator.executes:
            home = {"HOME": str(scratch), "HF_HOME": str(scratch / "huggingface"), "https_proxy": _NO_PROXY}
            return run_sandboxed(with_variables(command, {**VARIABLES, **home}), "", LIMIT_S)
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
