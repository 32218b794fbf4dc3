"""Workspaces made for a test: the checkout's settings, and a benchmark that closed accepts."""

import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import yaml

from harness_llm.config.rules import load_round
from harness_llm.paths import CHECKOUT, Workspace

CLOSED = "toy"
NAMES = ["--company", "Acme", "--system-name", "box"]
SUBMIT = ["submit", "--dry-run", "--model", CLOSED, "--division", "closed", "--profile", "valid", *NAMES]
"""A correct command line."""


def make_workspace(root: Path) -> Workspace:
    """The checkout's models/ and code/ below `root`, and `toy`, the demo under the rules of closed."""
    shutil.copytree(_template(), root, copy_function=shutil.copyfile, dirs_exist_ok=True)
    return Workspace(root)


@functools.cache
def _template() -> Path:
    """The workspace of which `make_workspace` makes copies; conftest.py removes it with the temporary folder."""
    root = Path(tempfile.mkdtemp(prefix="workspace-"))
    shutil.copytree(CHECKOUT / "models", root / "models")
    shutil.copytree(CHECKOUT / "code", root / "code")
    shutil.copytree(root / "models" / "demo", root / "models" / CLOSED)
    edit(root / "models" / CLOSED / "benchmark.yaml", _officially)
    edit(root / "models" / CLOSED / "cpu.yaml", lambda settings: settings["llm_config"].update(max_model_len=2048))
    return root


def _officially(facts: dict[str, Any]) -> None:
    facts.update(name=CLOSED, divisions=["closed", "open"], tree_suffix="", obstacle="")
    facts["sampling"]["max_tokens"] = load_round("v6.1").benchmark(facts["variants"][0]).max_output_tokens


def edit(file: Path, change: Any) -> None:
    """Let `change` alter what a YAML file holds."""
    content = yaml.safe_load(file.read_text()) if file.exists() else {}
    change(content)
    file.write_text(yaml.safe_dump(content, sort_keys=False))


def append(file: Path, text: str) -> None:
    """Add `text` at the end of `file`."""
    file.write_text(file.read_text() + text)
