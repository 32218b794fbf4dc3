"""Machines made of files, without the tools of the real one."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

PCI = "sys/bus/pci/devices"


def write_root(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


def hide_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the accelerators of the machine that runs the tests."""
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "amdsmi", None)
