import os

import pytest
from asked import options

from harness_llm.config.plan import resolve
from harness_llm.errors import ConfigError
from harness_llm.hardware.gpus import load_gpus
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.scenario_pool import _devices
from harness_llm.replicas.placement import device_environments, placement

GPUS = load_gpus(Workspace(CHECKOUT))


@pytest.mark.parametrize(
    ("gpu", "found", "inherited", "shape", "seen"),
    [
        ("h200", 8, {}, (8, 1), ["0", "1", "2", "3", "4", "5", "6", "7"]),
        ("h100", 8, {}, (4, 2), ["0,1", "2,3", "4,5", "6,7"]),
        ("mi300x", 8, {"HIP_VISIBLE_DEVICES": "4,5,6,7"}, (2, 1), ["4", "5"]),
        ("h200", 2, {"HIP_VISIBLE_DEVICES": ""}, (1, 2), ["0,1"]),
    ],
)
def test_each_replica_has_its_visible_devices(
    gpu: str, found: int, inherited: dict[str, str], shape: tuple[int, int], seen: list[str]
) -> None:
    name = "HIP_VISIBLE_DEVICES" if gpu.startswith("mi") else "CUDA_VISIBLE_DEVICES"
    replicas, size = shape
    assert device_environments(GPUS[gpu], found, inherited, replicas=replicas, size=size) == [
        {name: devices} for devices in seen
    ]


def test_replica_without_accelerators_has_no_device_variable() -> None:
    assert device_environments(None, 0, {}, replicas=2, size=1) == [{}, {}]


@pytest.mark.parametrize(("found", "inherited"), [(4, {}), (8, {"CUDA_VISIBLE_DEVICES": "0,1,2,3"})])
def test_too_few_devices_are_refused(found: int, inherited: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="not enough accelerators for 8 replicas of 1") as caught:
        device_environments(GPUS["h200"], found, inherited, replicas=8, size=1)
    assert caught.value.expected == "8 of NVIDIA H200"
    assert caught.value.found.startswith("4")
    assert "replicas=4" in caught.value.hint


@pytest.mark.parametrize("name", ["ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
def test_other_selections_of_amd_gpus_are_refused(name: str) -> None:
    inherited = {name: "4,5,6,7"}
    with pytest.raises(ConfigError, match=f"{name} is not supported on AMD GPUs") as caught:
        device_environments(GPUS["mi300x"], 8, inherited, replicas=4, size=1)
    assert caught.value.hint == f"unset {name}; export HIP_VISIBLE_DEVICES=4,5,6,7"
    assert len(device_environments(GPUS["h200"], 8, inherited, replicas=4, size=1)) == 4


@pytest.mark.parametrize(
    ("gpu", "name", "hint"),
    [
        (
            "h200",
            "CUDA_VISIBLE_DEVICES",
            "unset CUDA_VISIBLE_DEVICES; --gpu cpu ignores the GPUs",
        ),
        (
            "mi300x",
            "HIP_VISIBLE_DEVICES",
            "unset HIP_VISIBLE_DEVICES; --gpu cpu ignores the GPUs",
        ),
        ("mi300x", "ROCR_VISIBLE_DEVICES", "unset ROCR_VISIBLE_DEVICES"),
        ("mi300x", "CUDA_VISIBLE_DEVICES", "unset CUDA_VISIBLE_DEVICES"),
    ],
)
def test_empty_selection_of_devices_is_refused(gpu: str, name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        device_environments(GPUS[gpu], 8, {name: ""}, replicas=1, size=1)
    assert (caught.value.found, caught.value.hint) == (f"{name}=", hint)


def test_devices_named_by_uuid_are_not_bound() -> None:
    devices = [{"CUDA_VISIBLE_DEVICES": f"GPU-{number}"} for number in range(2)]
    found = placement(devices, loadgen_cpus=len(os.sched_getaffinity(0)))
    assert [set(own.binding.cpus) for own in found.replicas] == [os.sched_getaffinity(0)] * 2


def test_replicas_of_a_scenario_are_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness_llm.pipeline.scenario_pool.gpu_count", lambda *_, **__: 8)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    request = resolve(options(model="llama2-70b", gpu="h100", scenarios="Offline"), Workspace(CHECKOUT))
    seen = [devices["CUDA_VISIBLE_DEVICES"] for devices in _devices(request, request.scenarios[0])]
    assert seen == ["0,1", "2,3", "4,5", "6,7"]
    monkeypatch.setattr("harness_llm.pipeline.scenario_pool.gpu_count", lambda *_, **__: 4)
    with pytest.raises(ConfigError, match="not enough accelerators for 4 replicas of 2"):
        _devices(request, request.scenarios[0])
