"""The official submission checker, run from a checkout of mlcommons/inference."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.workspace import ENVIRONMENTS, Workspace

CHECKOUT_VARIABLE = "MLPERF_INFERENCE_DIR"
URL = "https://github.com/mlcommons/inference.git"
COMMIT = "b66003e10e2db4b8c36a448b0545ec90fcc6e9e9"  # what harness_llm/rules and models/*/benchmark.yaml cite
SUBMODULES = tuple(f"language/deepseek-r1/submodules/{name}" for name in ("LiveCodeBench", "prm800k"))
"""Those that the evaluators of deepseek-r1 and gpt-oss-120b import; the commit of the checkout pins them."""

_ARGUMENTS = ((), ("--submission-exceptions",))
_LAST = 20


@dataclass(frozen=True)
class OfficialVerdict:
    """What one run of the official checker said.

    Attributes:
        arguments: besides tree, round and csv; some faults show only with --submission-exceptions.
        exit_code: 0 if it accepts the tree.
        errors: its lines that say ERROR.
        tail: its last lines, which hold the traceback if it broke off.
        summary: the CSV file that it wrote, with the results that it counts.
    """

    arguments: tuple[str, ...]
    exit_code: int
    errors: list[str]
    tail: list[str]
    summary: str = ""

    @property
    def passed(self) -> bool:
        """Whether it accepts the tree."""
        return self.exit_code == 0


def checkout(workspace: Workspace) -> Path | None:
    """The checkout of mlcommons/inference that MLPERF_INFERENCE_DIR names, or that `make build` or this image has."""
    if named := os.environ.get(CHECKOUT_VARIABLE):
        return Path(named)
    return next((folder for folder in (workspace.inference, ENVIRONMENTS / "inference") if folder.is_dir()), None)


def clone(folder: Path, url: str = URL, commit: str = COMMIT, submodules: Sequence[str] = SUBMODULES) -> str:
    """Put mlcommons/inference at `commit` with `submodules`, without history, into `folder`; returns a line of output.

    Raises:
        ConfigError: another commit is there.
        EnvironmentMissing: git is not installed, or `url` cannot be reached.
    """
    if folder.is_dir():
        if (found := _git(folder, "rev-parse", "HEAD")) != commit:
            raise ConfigError(
                "another commit of mlcommons/inference is checked out",
                where=str(folder),
                expected=commit,
                found=found,
                hint=f"rm -r {folder}, and the same command again",
            )
        _add(folder, submodules)
        return f"{folder} is at {commit}"
    aside = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        for words in ("init --quiet", f"fetch --quiet --depth=1 {url} {commit}", f"checkout --quiet {commit}"):
            _git(aside, *words.split())
        _add(aside, submodules)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return f"{url} at {commit} -> {folder}"


def _add(folder: Path, submodules: Sequence[str]) -> None:
    if submodules:
        _git(folder, "submodule", "--quiet", "update", "--init", "--depth=1", *submodules)


def _git(folder: Path, *words: str) -> str:
    environment = os.environ | {"GIT_TERMINAL_PROMPT": "0", "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    try:
        done = subprocess.run(["git", *words], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise EnvironmentMissing("git is not installed", hint="apt install git, or the like") from error
    except subprocess.CalledProcessError as error:
        raise EnvironmentMissing(
            "mlcommons/inference cannot be had",
            where=f"{folder}: git {' '.join(words)}",
            found=error.stderr.strip(),
            hint=f"set {CHECKOUT_VARIABLE} to a checkout that is there; "
            "or name a mirror: git config --global url.MIRROR.insteadOf https://github.com/",
        ) from error
    return done.stdout.strip()


def run_official(tree: Path, round_name: str, inference_dir: Path) -> list[OfficialVerdict]:
    """Run the official checker, plain and with `--submission-exceptions`.

    Args:
        tree: the folder that holds closed/ or open/.
        round_name: for example v6.1.
        inference_dir: a checkout of mlcommons/inference.

    Raises:
        EnvironmentMissing: the checkout has no submission checker.
    """
    folder = inference_dir / "tools" / "submission"
    if not (folder / "submission_checker" / "main.py").is_file():
        raise EnvironmentMissing(
            "the official submission checker is not there",
            where=str(folder),
            expected="a checkout of mlcommons/inference",
            hint=f"make build; or git clone {URL}, and set {CHECKOUT_VARIABLE} to it",
        )
    return [_run(tree.resolve(), round_name, folder, arguments) for arguments in _ARGUMENTS]


def _run(tree: Path, round_name: str, folder: Path, arguments: tuple[str, ...]) -> OfficialVerdict:
    with tempfile.TemporaryDirectory() as scratch:
        summary = Path(scratch, "summary.csv")
        done = subprocess.run(
            [
                *(sys.executable, "-B", "-m", "submission_checker.main"),
                *("--input", str(tree), "--version", round_name, "--csv", str(summary)),
                *arguments,
            ],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        text = summary.read_text() if summary.is_file() else ""
    lines = done.stdout.splitlines()
    return OfficialVerdict(arguments, done.returncode, [x for x in lines if " ERROR" in x], lines[-_LAST:], text)
