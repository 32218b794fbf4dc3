"""Run official accuracy scripts from a checkout of mlcommons/inference, in a sandbox if they execute programs."""

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
from harness_llm.evaluate.official.namespaces import run_in_namespaces
from harness_llm.evaluate.official.scripts import (
    ENVIRONMENT,
    LIMIT_S,
    VARIABLES,
    Inputs,
    find_script,
    make_folder,
    python_arguments,
)
from harness_llm.evaluate.sandbox import Finished, run_sandboxed, with_variables
from harness_llm.evaluate.score import answers_by_index, token_counts
from harness_llm.fileio import write_atomically
from harness_llm.loadgen.logs import read_accuracy_log
from harness_llm.paths import ENVIRONMENTS, Workspace, installed_by

# A closed port: nltk.download, which ROUGE scripts call, fails at once instead of waiting for dropped packets.
_NO_PROXY = "http://127.0.0.1:9"

PYTHON = ENVIRONMENTS / ENVIRONMENT / "bin" / "python"


def evaluate(method: str, inputs: Inputs, samples: int) -> dict[str, float]:
    """Score the answers of a log.

    Args:
        method: key of `ACCURACY_SCRIPTS`.
        samples: number of samples that must have an answer.

    Returns:
        EXACT_MATCH (percent), TOKENS_PER_SAMPLE and GEN_NUM; tokens are counted here if the script does not.

    Raises:
        EnvironmentMissing: the checkout, its packages or a sandbox are missing.
        ConfigError: the log is damaged or incomplete.
        RunFailed: the script failed or printed no score.
    """
    counts = token_counts(answers_by_index(read_accuracy_log(inputs.log), samples))
    out = run_accuracy_script(method, inputs)
    printed = parse(out)
    if "EXACT_MATCH" not in printed:
        raise RunFailed(
            "no score in the output of the accuracy script",
            where=find_script(method).path,
            expected="'exact_match': …",
            found=(out.splitlines() or ["no output"])[-1],
        )
    return counts | printed


def run_accuracy_script(method: str, inputs: Inputs) -> str:
    """Run an accuracy script and return its output, which is cached by the digests of its inputs.

    Raises:
        EnvironmentMissing: the checkout, its packages or a sandbox are missing.
        RunFailed: the script failed.
    """
    cached = cached_output(method, inputs)
    if cached.is_file():
        return cached.read_text()
    done = _run(method, inputs)
    if done.code:
        raise RunFailed("accuracy script failed", where=find_script(method).path, found=_last_line(done))
    cached.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(cached) as temporary:
        temporary.write_text(done.out)
    return done.out


def cached_output(method: str, inputs: Inputs) -> Path:
    """Path of the cached output; raises EnvironmentMissing without a checkout."""
    files = (_checkout(method) / find_script(method).path, inputs.log, inputs.source)
    digests = json.dumps([file_digest(file) for file in files])
    return Workspace().official / f"{hashlib.sha256(digests.encode()).hexdigest()}.txt"


def require_accuracy_script(method: str) -> None:
    """Raise EnvironmentMissing if `evaluate` would, except for missing data; takes seconds."""
    done = _run(method, None)
    if done.code:
        raise EnvironmentMissing(
            "accuracy script cannot run here",
            where=str(_checkout(method) / find_script(method).path),
            expected="its packages, and the submodules LiveCodeBench and prm800k if it executes programs",
            found=_last_line(done),
            hint=f"{installed_by('graders')}; in a checkout of mlcommons/inference: "
            "git submodule update --init --depth 1 language/deepseek-r1/submodules",
        )


def _checkout(method: str) -> Path:
    folder = checkout(Workspace())
    script = find_script(method).path
    if folder is None or not (folder / script).is_file():
        raise EnvironmentMissing(
            "missing accuracy script, which scoring these answers requires",
            where=str(folder / script) if folder else CHECKOUT_VARIABLE,
            expected=f"{script} in a checkout of mlcommons/inference",
            found="no such file" if folder else "no checkout",
            hint=f"make build; or set {CHECKOUT_VARIABLE} to a checkout with submodules",
        )
    return folder.resolve()


def _run(method: str, inputs: Inputs | None) -> Finished:
    """Run a script, or its trial if `inputs` is None, in the available sandbox."""
    script, source = find_script(method), _checkout(method)
    log, data = (str(inputs.log.resolve()), str(inputs.source.resolve())) if inputs else ("", "")
    with _scratch() as scratch:
        folder = scratch / "script"
        make_folder(folder, script, source, inputs)
        if service.is_offered() and script.executes:
            return Finished(*service.ask(service.Grade(method=method, folder=str(folder), log=log, source=data)))
        if not PYTHON.is_file():
            raise missing_packages()
        paths = [source, folder, PYTHON.parent.parent, Path(sys.base_prefix)]
        if inputs:
            files = (inputs.log, inputs.source, inputs.checkpoint, inputs.livecodebench)
            paths += [file for file in files if file]
        command = [str(PYTHON), *python_arguments(script, str(folder), log, data)]
        if not script.executes:
            home = {"HOME": str(scratch), "HF_HOME": str(scratch / "huggingface"), "https_proxy": _NO_PROXY}
            return run_sandboxed(with_variables(command, {**VARIABLES, **home}), "", LIMIT_S)
        return run_in_namespaces(command, [path.resolve() for path in paths], VARIABLES, LIMIT_S, scratch)


def missing_packages() -> EnvironmentMissing:
    """The error that the environment of the official scripts is not installed."""
    return EnvironmentMissing(
        "missing packages of the official scripts", where=str(PYTHON), hint=installed_by("graders")
    )


@contextmanager
def _scratch() -> Iterator[Path]:
    """Yield a temporary folder in the workspace, which the scoring service's containers mount at the same path."""
    parent = Workspace().scoring
    parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=parent) as folder:
        yield Path(folder).resolve()


def _last_line(done: Finished) -> str:
    return (done.err.strip() or f"exit code {done.code}").splitlines()[-1]
