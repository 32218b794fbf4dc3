"""The checkout of mlcommons/inference: its path, and the clone by `make build`."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.fileio import replacing
from harness_llm.paths import ENVIRONMENTS, Workspace

CHECKOUT_VARIABLE = "MLPERF_INFERENCE_DIR"
URL = "https://github.com/mlcommons/inference.git"
COMMIT = "b66003e10e2db4b8c36a448b0545ec90fcc6e9e9"  # harness_llm/config/rules and models/*/benchmark.yaml cite it
SUBMODULES = tuple(f"language/deepseek-r1/submodules/{name}" for name in ("LiveCodeBench", "prm800k"))
"""Imported by the evaluators of deepseek-r1 and gpt-oss-120b; the commit of the checkout pins them."""


def checkout(workspace: Workspace) -> Path | None:
    """The checkout of MLPERF_INFERENCE_DIR, of `make build` or of this image; None without one."""
    if named := os.environ.get(CHECKOUT_VARIABLE):
        return Path(named)
    return next((folder for folder in (workspace.inference, ENVIRONMENTS / "inference") if folder.is_dir()), None)


def clone(folder: Path, url: str = URL, commit: str = COMMIT, submodules: Sequence[str] = SUBMODULES) -> str:
    """Clone `commit` of mlcommons/inference with `submodules`, without history, into `folder`; returns a message.

    Raises:
        ConfigError: `folder` has another commit.
        EnvironmentMissing: git is not installed, or `url` cannot be reached.
    """
    if folder.is_dir():
        if (found := _git(folder, "rev-parse", "HEAD")) != commit:
            raise ConfigError(
                "another commit of mlcommons/inference is checked out",
                where=str(folder),
                expected=commit,
                found=found,
                hint=f"rm -r {folder}, then run the same command again",
            )
        _add(folder, submodules)
        return f"{folder} is at {commit}"
    with replacing(folder) as temporary:
        for words in ("init --quiet", f"fetch --quiet --depth=1 {url} {commit}", f"checkout --quiet {commit}"):
            _git(temporary, *words.split())
        _add(temporary, submodules)
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
            "cannot clone mlcommons/inference",
            where=f"{folder}: git {' '.join(words)}",
            found=error.stderr.strip(),
            hint=f"set {CHECKOUT_VARIABLE} to an existing checkout, "
            "or use a mirror: git config --global url.MIRROR.insteadOf https://github.com/",
        ) from error
    return done.stdout.strip()
