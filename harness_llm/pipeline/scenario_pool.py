"""The replica pool of a scenario, on this machine or on a Ray cluster."""

import os

from harness_llm.config.assets import Assets
from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.hardware.gpus import NO_ACCELERATOR, gpu_count, load_gpus
from harness_llm.pipeline.profiling import profiling_of
from harness_llm.replicas.local import Launcher, launch, process_names, start_pool
from harness_llm.replicas.placement import Placement, device_environments, placement
from harness_llm.replicas.pool import ReplicaPool, Report
from harness_llm.replicas.ray.cluster import Cluster
from harness_llm.replicas.ray.launcher import ray_launcher


def start_scenario_pool(
    request: Request, plan: ScenarioPlan, assets: Assets, cluster: Cluster | None, report: Report
) -> ReplicaPool:
    """Start the replicas of `plan`.

    Raises:
        HarnessError: they did not start.
    """
    placed, launcher = _placed(request, plan, cluster)
    profiling = profiling_of(request, plan.scenario)
    return start_pool(
        plan.config,
        engine=request.options.engine,
        checkpoint=assets.checkpoint,
        calibration=assets.calibration,
        logs=request.log_folder / plan.scenario,
        cache=request.workspace.cache,
        report=report,
        placed=placed,
        launcher=launcher,
        traces=profiling.traces if profiling else None,
    )


def _placed(request: Request, plan: ScenarioPlan, cluster: Cluster | None) -> tuple[Placement, Launcher]:
    """The devices and CPUs of each replica, and the function that starts replicas."""
    engine = request.options.engine
    if cluster:
        accelerated = request.options.gpu != NO_ACCELERATOR
        ray = ray_launcher(cluster, plan.config, engine, accelerated=accelerated)
        return ray.placed, ray
    devices = _devices(request, plan)[: len(process_names(plan.config, engine))]
    return placement(devices, plan.config.harness_config.loadgen_cpus), launch


def _devices(request: Request, plan: ScenarioPlan) -> list[dict[str, str]]:
    """The environment that gives each replica its accelerators; running servers have their own."""
    name, config = request.options.gpu, plan.config
    gpu = None if config.server_config.url else load_gpus(request.workspace).get(name)
    found = gpu_count(name, workspace=request.workspace) if gpu else 0
    return device_environments(gpu, found, os.environ, replicas=config.replicas, size=config.group)
