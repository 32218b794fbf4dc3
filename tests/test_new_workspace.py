"""`harness-llm submit` in a workspace without runs: the plan, and a damaged checkpoint."""

import re
from collections.abc import Callable, Iterator

import pytest
from terminal import Terminal
from test_submission_journey import SCENARIOS, SUBMIT, SYSTEM, digests

from harness_llm.paths import Workspace

pytestmark = pytest.mark.engine


@pytest.fixture
def fresh(new_workspace: Callable[[], Workspace]) -> Iterator[Terminal]:
    """A workspace without runs."""
    terminal = Terminal(new_workspace())
    yield terminal
    terminal.close()


def test_dry_run_writes_no_file(fresh: Terminal) -> None:
    fresh.run("status", "--system-name", SYSTEM)  # hashes the checkpoints, and remembers that
    before = digests(fresh.workspace.root)
    end = fresh.run(*SUBMIT, "--dry-run")
    assert end.code == 0
    for scenario in SCENARIOS:
        for test, samples in (("performance", 2048), ("accuracy", 2048), ("TEST06", 100)):
            assert re.search(rf"{scenario} +{test} +{samples} samples, about \d+:\d\d", end.err)
    assert digests(fresh.workspace.root) == before
    assert not fresh.socket_folders()


def test_corrupt_checkpoint_is_named(fresh: Terminal) -> None:
    weights = fresh.workspace.models / "demo-fp8" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    end = fresh.run(*SUBMIT)
    assert end.code == 2
    assert "a checkpoint is damaged" in end.err
    assert str(weights) in end.err
    assert not fresh.workspace.logs.exists()
