"""Throttled devices in diagnoses.

The recorded runs are of a machine without GPUs, so their device records are replaced.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from diagnosed_runs import path_of, tree
from runs import recorded_node

from harness_llm.analysis.diagnosis.causes import Cause
from harness_llm.analysis.diagnosis.diagnosis import diagnose
from harness_llm.analysis.diagnosis.run_data import read_run
from harness_llm.runs.record import NodeRecord


def with_gpus(tmp_path: Path, case: str, **changes: Any) -> Path:
    """A recorded run with three GPUs at 1980 MHz; `changes` are columns of gpu-1."""
    target = tmp_path / case / Path(*path_of(case).parts[-4:])
    shutil.copytree(path_of(case), target)
    table = pq.read_table(target / "devices.parquet")
    times = table["time_s"].to_numpy()
    columns: dict[str, list[Any]] = {name: [] for name in table.schema.names}
    for time in times:
        for gpu in range(3):
            row = {"time_s": time, "device": f"gpu-{gpu}", "clock_mhz": 1980.0 - gpu, "throttle": "", "power_w": 600.0}
            row |= {"temperature_c": 60.0} | (changes if gpu == 1 else {})
            for name, values in columns.items():
                values.append(row.get(name))
    pq.write_table(pa.table(columns, schema=table.schema), target / "devices.parquet")
    return target


def test_thermal_throttling_explains_the_slow_replica(tmp_path: Path) -> None:
    changes = {"throttle": "hardware thermal", "clock_mhz": 600.0, "temperature_c": 91.0}
    diagnosis = diagnose(read_run(with_gpus(tmp_path, "slow_replica_invalid", **changes)))
    first, second = diagnosis.findings[:2]
    assert (first.cause, second.cause) == (Cause.THROTTLING, Cause.SLOW_REPLICA)
    assert second.because_of == (Cause.THROTTLING,)
    assert "gpu-1: hardware thermal" in first.summary
    assert first.loss == pytest.approx((1 - 600 / 1980) / 3, abs=0.01)


def test_throttled_device_of_another_replica_does_not_explain_the_slow_one(tmp_path: Path) -> None:
    """replica-2 is slow, but gpu-1 is throttled."""
    path = with_gpus(tmp_path, "slow_replica_valid", throttle="hardware thermal", clock_mhz=600.0)
    assert tree(diagnose(read_run(path))) == {Cause.THROTTLING: set(), Cause.SLOW_REPLICA: set()}


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({}, []),
        ({"throttle": "power cap"}, []),  # usual under full load
        ({"throttle": "power cap", "clock_mhz": 1600.0}, [Cause.THROTTLING]),
        ({"clock_mhz": 1600.0}, [Cause.THROTTLING]),
        ({"clock_mhz": 300.0, "utilisation": 0.0}, []),  # not used by the run
        ({"throttle": None, "clock_mhz": None}, []),
    ],
)
def test_power_cap_counts_only_with_a_lower_clock(tmp_path: Path, changes: dict[str, Any], causes: list[Cause]) -> None:
    diagnosis = diagnose(read_run(with_gpus(tmp_path, "healthy_server", **changes)))
    assert [finding.cause for finding in diagnosis.findings] == causes


@pytest.mark.parametrize(("hot", "counts"), [(2, False), (30, True)])
def test_rare_reason_beside_the_power_cap_does_not_count(tmp_path: Path, hot: int, counts: bool) -> None:
    """Better cooling is no remedy for heat in less than 5 % of the seconds."""
    data = read_run(with_gpus(tmp_path, "healthy_server", throttle="power cap"))
    assert data.devices
    devices = {name: np.repeat(values, 5) for name, values in data.devices.items()}
    [busy] = np.nonzero((devices["device"] == "gpu-1") & (devices["time_s"] >= data.window[0]))
    devices["throttle"][busy[:hot]] = "power cap, software thermal"
    found = diagnose(replace(data, devices=devices)).findings
    assert [finding.action for finding in found] == ["improve the cooling"] * counts
    assert all("power cap in 100%, software thermal in 3" in finding.summary for finding in found)


GPU_1_HOT = {"throttle": "hardware thermal", "clock_mhz": 600.0}


@pytest.mark.parametrize(
    ("inherited", "nodes", "replicas", "named"),
    [
        ({}, {"": recorded_node()}, 3, ("replica-1",)),
        ({"CUDA_VISIBLE_DEVICES": "1,2"}, {}, 2, ("replica-0",)),
        ({"CUDA_VISIBLE_DEVICES": "GPU-5a,GPU-5b"}, {}, 2, ()),
        ({"HIP_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "1,2"}, {}, 2, ()),
        ({}, {"10.0.0.1": recorded_node(), "10.0.0.2": recorded_node()}, 6, ()),
        ({}, {}, 1, ()),  # gpu-1 is not of the run
    ],
)
def test_clock_loss_is_shared_among_the_devices_of_the_run(
    tmp_path: Path, inherited: dict[str, str], nodes: dict[str, NodeRecord], replicas: int, named: tuple[str, ...]
) -> None:
    """LoadGen's node has three GPUs; replicas are named only where their devices are known."""
    data = read_run(with_gpus(tmp_path, "healthy_server", **GPU_1_HOT))
    record = data.record.model_copy(update={"fingerprint": {"inherited": inherited}, "nodes": nodes})
    settings = {**data.settings, "harness_config": {**data.settings["harness_config"], "replicas": replicas}}
    [finding] = diagnose(replace(data, record=record, settings=settings)).findings
    assert finding.loss == pytest.approx((1 - 600 / 1980) / replicas, abs=0.01)
    assert finding.replicas == named


def test_clock_loss_of_running_servers_names_no_replica(tmp_path: Path) -> None:
    data = read_run(with_gpus(tmp_path, "healthy_server", **GPU_1_HOT))
    servers = {"server_config": {"url": [f"http://node-{number}:8000" for number in range(4)]}}
    [finding] = diagnose(replace(data, settings={**data.settings, **servers})).findings
    assert finding.loss == pytest.approx((1 - 600 / 1980) / 4, abs=0.01)
    assert finding.replicas == ()
