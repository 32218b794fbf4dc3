import contextlib
import sys
from collections.abc import Callable, Iterator

import pytest
from real_loadgen import NEWEST
from terminal import Terminal, prepared_workspace

from harness_llm.config.assets import Assets, prepare
from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.profile import load_profile
from harness_llm.errors import EnvironmentMissing
from harness_llm.loadgen.versions import loadgen_folder
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.prepare.preparation import preparation_of

BENCHMARK = "demo"
PROFILE = "smoke"

with contextlib.suppress(EnvironmentMissing):  # what needs it is skipped
    sys.path.insert(0, str(loadgen_folder(NEWEST)))


@pytest.fixture(scope="session")
def assets() -> Assets:
    """The demo's data, checkpoints and reference scores; made once, then kept in the checkout's build/."""
    workspace = Workspace(CHECKOUT)
    benchmark = load_benchmark(BENCHMARK, workspace)
    samples = load_profile(PROFILE, workspace).sample_count(benchmark.dataset.of("accuracy").samples)
    return prepare(preparation_of(benchmark, workspace, samples), lambda *_: None)


@pytest.fixture(scope="session")
def new_workspace(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Workspace]:
    """Makes workspaces that hold the assets and nothing else."""
    return lambda: prepared_workspace(tmp_path_factory.mktemp("workspace"), assets)


@pytest.fixture(scope="module")
def workspace(new_workspace: Callable[[], Workspace]) -> Workspace:
    return new_workspace()


@pytest.fixture(scope="module")
def terminal(workspace: Workspace) -> Iterator[Terminal]:
    terminal = Terminal(workspace)
    yield terminal
    terminal.close()
