from pathlib import Path

import pytest
from workspaces import make_workspace

from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.device_count import spread, targets_file
from harness_llm.config.engine_config import load_config
from harness_llm.errors import ConfigError
from harness_llm.paths import CHECKOUT, Workspace

CHECKOUTS = Workspace(CHECKOUT)


def replicas(model: str, gpu: str, count: int) -> int:
    config = load_config(load_benchmark(model, CHECKOUTS), "Offline", gpu, (), CHECKOUTS)
    return spread(config, count).harness_config.replicas


@pytest.mark.parametrize(
    ("model", "gpu", "count", "fit"),
    [
        ("llama2-70b", "mi300x", 8, 8),
        ("llama2-70b", "mi300x", 1, 1),
        ("llama2-70b", "h100", 6, 3),  # tensor parallel over two
        ("llama3.1-405b", "h100x16", 16, 1),  # tensor parallel over eight, two stages
        ("demo", "cpu", 3, 3),
    ],
)
def test_devices_become_replicas(model: str, gpu: str, count: int, fit: int) -> None:
    assert replicas(model, gpu, count) == fit


def test_no_device_is_left_over() -> None:
    with pytest.raises(ConfigError, match="the replicas cannot use all devices") as caught:
        replicas("llama2-70b", "h100", 7)
    assert caught.value.expected.startswith("a multiple of 2, ")


def test_targets_are_those_of_the_number(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    own = workspace.user_confs / "user_mi300x_1gpu.conf"
    for gpu, count in (("mi300x", None), ("mi300x", 8), ("cpu", 3), ("h100x16", 16)):
        assert targets_file(gpu, count, workspace) == workspace.user_confs / f"user_{gpu}.conf"
    with pytest.raises(ConfigError, match="missing LoadGen targets for 1 mi300x") as caught:
        targets_file("mi300x", 1, workspace)
    assert f"cp {workspace.user_confs}/user_mi300x.conf {own}" in caught.value.hint
    own.write_text("")
    assert targets_file("mi300x", 1, workspace) == own
