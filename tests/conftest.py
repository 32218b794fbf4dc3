import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from temporary_root import temporary_root

# Locks and sockets of this process are its own: a submission that runs on this machine, and other workers, have others.
os.environ["PYTEST_DEBUG_TEMPROOT"] = ROOT = temporary_root()
os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="hl-", dir=ROOT)

# Waiting threads sleep: awake, those of several engines on the same cores slow each other down many times.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import hypothesis
import pytest
from demo_cache import demo_assets
from real_loadgen import NEWEST
from terminal import Terminal, prepared_workspace

from harness_llm.config.assets import Assets
from harness_llm.config.commands import MAKE_VARIABLE
from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE
from harness_llm.errors import EnvironmentMissing
from harness_llm.evaluate.official import script_runner
from harness_llm.loadgen.versions import loadgen_folder
from harness_llm.paths import Workspace

with contextlib.suppress(EnvironmentMissing):  # tests that need it are skipped
    sys.path.insert(0, str(loadgen_folder(NEWEST)))


# `make test` runs these tests; messages are those for users of harness-llm.
os.environ.pop(MAKE_VARIABLE, None)

OPTIONAL = {
    "inference": (
        bool(os.environ.get(CHECKOUT_VARIABLE)),
        f"{CHECKOUT_VARIABLE} names no checkout of mlcommons/inference",
    ),
    "graders": (script_runner.PYTHON.is_file(), "no environment of the graders: make graders"),
}
"""Markers of tests that need what a checkout may lack: whether it is there, and the reason to skip them."""


# A loaded machine is slow; tests assert no durations.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")


def pytest_configure() -> None:
    Path(os.environ["TMPDIR"]).chmod(0o755)  # the ordinary user of the container tests enters it
    # A shell makes its background commands ignore Ctrl-C; programs that tests interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)


@pytest.fixture(autouse=True)
def _without_inference_checkout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests without the marker give the same result whether a checkout of mlcommons/inference is set or not."""
    if not any(request.node.get_closest_marker(name) for name in OPTIONAL):
        monkeypatch.delenv(CHECKOUT_VARIABLE, raising=False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need optional parts, and run the longest modules first, so that all workers end together."""
    for item in items:
        for name, (present, reason) in OPTIONAL.items():
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.slow)
                item.add_marker(pytest.mark.skipif(not present, reason=reason))
    items.sort(key=_seconds, reverse=True)


def _seconds(item: pytest.Item) -> float:
    markers = (mark for name in ("engine", "processes") for mark in item.iter_markers(name))
    return max((float(mark.kwargs.get("seconds", 0)) for mark in markers), default=0.0)


@pytest.fixture(scope="session")
def assets() -> Assets:
    """The demo's data, checkpoints and reference scores; see demo_cache.py."""
    return demo_assets()


@pytest.fixture(scope="session")
def new_workspace(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Workspace]:
    """Return a function that makes workspaces with the demo's assets and without runs."""
    return lambda: prepared_workspace(tmp_path_factory.mktemp("workspace"), assets)


@pytest.fixture(scope="module")
def workspace(new_workspace: Callable[[], Workspace]) -> Workspace:
    return new_workspace()


@pytest.fixture(scope="module")
def terminal(workspace: Workspace) -> Iterator[Terminal]:
    terminal = Terminal(workspace)
    yield terminal
    terminal.close()
