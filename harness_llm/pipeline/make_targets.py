"""Targets of NVIDIA's Makefile: link_dirs, generate_engines, and the clone of mlcommons/inference by `make build`.

See inference_results_v5.1 closed/NVIDIA/Makefile and Makefile.build.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from harness_llm.config.engines import ENGINES, REPLAY
from harness_llm.config.inference_checkout import clone
from harness_llm.errors import ConfigError, EnvironmentMissing, exit_code_of
from harness_llm.paths import SCRATCH_VARIABLE, Workspace

SCRATCH = ("data", "models", "preprocessed_data")
ENGINE_BUILDS = {
    "vllm": "it loads the checkpoint as it is, and compiles while it starts",
    "transformers": "PyTorch loads the checkpoint as it is",
    "openai": "the server builds what it needs",
    "llmboost": "the server of its wheel builds what it needs",
    REPLAY: "it computes nothing",
}
"""Why `make generate_engines`, which users of NVIDIA's harness call, has nothing to do for an engine."""


def generate_engines(engine: str) -> str:
    """Return the message of `make generate_engines`.

    Raises:
        ConfigError: unknown engine.
    """
    if engine not in ENGINES:
        raise ConfigError(f"unknown engine {engine}", expected=", ".join(ENGINES))
    return f"{engine} has no engines to generate: {ENGINE_BUILDS[engine]}"


def link_dirs(workspace: Workspace, scratch: str) -> Iterator[str]:
    """Make the folders of the scratch space, link them below build/, and yield a message for each.

    A folder of build/ that has files stays; models and data are in the scratch space while the variable is set.

    Raises:
        EnvironmentMissing: a folder cannot be made.
    """
    if not scratch:
        yield f"{SCRATCH_VARIABLE} is not set: models and data stay below build/"
        return
    for name in SCRATCH:
        folder, link = Path(scratch).resolve() / name, workspace.build / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentMissing(
                "cannot make the scratch space", where=f"{SCRATCH_VARIABLE}: {folder}", found=str(error.strerror)
            ) from error
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink():
            link.unlink()
        elif link.is_dir() and not any(link.iterdir()):
            link.rmdir()
        if link.exists():
            yield f"{link} stays, and is not used while {SCRATCH_VARIABLE} is set: {folder} is used"
        else:
            link.symlink_to(folder)
            yield f"{link} -> {folder}"


def _messages(target: str, workspace: Workspace) -> Iterator[str]:
    if target == "generate_engines":
        yield generate_engines(os.environ.get("ENGINE") or next(iter(ENGINES)))
    elif target == "link_dirs":
        yield from link_dirs(workspace, os.environ.get(SCRATCH_VARIABLE, ""))
    else:
        yield clone(workspace.inference)


def main() -> None:
    """`python -m harness_llm.pipeline.make_targets TARGET`, for the Makefile."""
    parser = argparse.ArgumentParser(description="Targets of NVIDIA's Makefile.")
    parser.add_argument("target", choices=("generate_engines", "link_dirs", "clone_inference"))
    for line in _messages(parser.parse_args().target, Workspace()):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
