"""Run all checks of one benchmark, before anything is downloaded, built or started."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness_llm.config.commands import command, name_of
from harness_llm.config.engine_config import EngineConfig
from harness_llm.config.options import Options
from harness_llm.config.request import Request
from harness_llm.config.stand_in import without_accelerator
from harness_llm.config.submission_names import folder_name
from harness_llm.errors import HarnessError
from harness_llm.hardware.accelerators import restrict_accelerators
from harness_llm.hardware.device_lock import hold
from harness_llm.hardware.ecc import UNTOLD, Ecc, read_ecc
from harness_llm.hardware.gpu_state import read_devices
from harness_llm.hardware.gpus import NO_ACCELERATOR, Gpu, load_gpus
from harness_llm.hardware.host_settings import read_host_settings
from harness_llm.hardware.machine import detect
from harness_llm.hardware.nodes import merged, merged_ecc
from harness_llm.hardware.pci import accelerators
from harness_llm.paths import IMAGE_VARIABLE, Workspace
from harness_llm.pipeline.doctor.asset_checks import check_assets, check_quantization, space_needs
from harness_llm.pipeline.doctor.check_result import CheckResult, errors, failed, from_error, not_checked, passed
from harness_llm.pipeline.doctor.disk_space import SpaceNeed, log_space
from harness_llm.pipeline.doctor.download_checks import Source, missing_sources
from harness_llm.pipeline.doctor.folder_checks import written_places
from harness_llm.pipeline.doctor.gpu_checks import Wanted, check_gpus, installed_cuda
from harness_llm.pipeline.doctor.host_checks import check_host, check_limits, check_temporary_folder, read_limits
from harness_llm.pipeline.doctor.purpose import Part, Purpose
from harness_llm.pipeline.doctor.server_checks import check_servers
from harness_llm.pipeline.doctor.settings_checks import (
    check_acceptance,
    check_engine,
    check_inferred,
    check_metrics_port,
    check_names,
    check_nodes,
    check_visible_devices,
    resolve_settings,
)
from harness_llm.pipeline.doctor.software_checks import (
    OFFICIAL,
    SCORING,
    check_compilers,
    check_engine_arguments,
    check_loadgen,
    check_official_scripts,
    check_scoring,
    check_vllm_build,
)
from harness_llm.pipeline.doctor.system_checks import IMAGE_FRAMEWORK, check_availability, check_ecc, check_system
from harness_llm.pipeline.engine_settings.capacity import DEFAULT_UTILIZATION, utilization
from harness_llm.pipeline.engine_settings.engine_checks import BY_VLLM, check_rules
from harness_llm.runs.fingerprint import versions
from harness_llm.write_access import Place

if TYPE_CHECKING:
    from harness_llm.replicas.ray.cluster import Cluster

Tell = Callable[[str], None]
_CLUSTER = "Ray cluster"
_UNNAMED = "unnamed"  # replaces a missing submitter, so that the system is checked too


@dataclass(frozen=True)
class Needs:
    """What several benchmarks may need of the same server or disk.

    Attributes:
        sources: of the downloads.
        places: folders to be written.
        space: files to be written.
    """

    sources: Sequence[Source] = ()
    places: Sequence[Place] = ()
    space: Sequence[SpaceNeed] = ()


@dataclass(frozen=True)
class Examination:
    """Results of the checks of one benchmark.

    Attributes:
        results: in the order of the output.
        request: resolved options; None if they contradict the configuration files.
        cluster: None without `--ray`, or if the cluster cannot be reached.
        needs: of this benchmark; `combine_results` checks those of all benchmarks together.
    """

    results: Sequence[CheckResult]
    request: Request | None
    cluster: "Cluster | None"
    needs: Needs = Needs()


def examine(
    loaded: Request,
    purpose: Purpose,
    *,
    part: Part = Part.ALL,
    root: Path = Path("/"),
    tell: Tell = lambda _: None,
) -> Examination:
    """Run all checks that apply to `request`; a failed check does not stop the others.

    Args:
        root: parent folder of /proc, /sys, /dev and /etc.
        tell: prints a line before a slow check.
    """
    options, workspace = loaded.options, loaded.workspace
    request, settings = resolve_settings(loaded, in_image=part is Part.HOST)
    cluster, reached = _cluster(options, workspace, tell)
    results = [*settings, *reached, *_check_assignment(request, cluster), _device_lock(options)]
    if request and part is not Part.CONTAINER:
        results += [*check_assets(request), *check_quantization(request, here=part is Part.ALL)]
    if purpose is not Purpose.PREPARE:
        detected, ecc = _machine(request, cluster, part, root)
        results += [*check_names(options, purpose), *check_metrics_port(options)]
        if request:
            results += _system(request, purpose, detected, ecc)
        configs = [plan.config for plan in request.scenarios] if request else []
        devices = list(_gpus(loaded, configs, part, root))
        results += devices
        if options.gpu != NO_ACCELERATOR:
            results += _hosts(cluster, root)
        if part is not Part.HOST:
            results += check_temporary_folder()
            if options.gpu != NO_ACCELERATOR:
                results += check_limits(read_limits(root), max((config.group for config in configs), default=1))
            results += _software(request, usable=bool(accelerators(root)) and not errors(devices))
    return Examination(results, request, cluster, _needs(request, purpose, part) if request else Needs())


def _needs(request: Request, purpose: Purpose, part: Part) -> Needs:
    """Return the needs; another container than that of the runs prepares, and `docker_checks` checks its folders."""
    places = [] if part is Part.HOST else written_places(request, purpose)
    if part is Part.CONTAINER:
        return Needs(places=places)
    space = space_needs(request) + ([] if purpose is Purpose.PREPARE else log_space(request))
    return Needs(missing_sources(request, by_containers=part is Part.HOST), places, space)


def _cluster(options: Options, workspace: Workspace, tell: Tell) -> "tuple[Cluster | None, list[CheckResult]]":
    """Survey the cluster of `--ray`."""
    if not options.ray:
        return None, []
    from harness_llm.replicas.ray.cluster import query_cluster  # noqa: PLC0415 - loads httpx

    tell(f"checking the nodes of the Ray cluster at {options.ray}")
    try:
        cluster = query_cluster(options.ray, workspace.stage_log("nodes"))
    except HarnessError as error:
        return None, [from_error(_CLUSTER, error)]
    except OSError as error:  # of its log; `check_folders` reports the cause
        return None, [not_checked(_CLUSTER, str(error))]
    for node in cluster.nodes:
        tell(f"  {node.address}: {node.cpus} CPUs, {node.gpus} accelerators")
    nodes = ", ".join(f"{node.address} ({node.cpus} CPUs, {node.gpus} accelerators)" for node in cluster.nodes)
    return cluster, [passed(_CLUSTER, nodes)]


def _check_assignment(request: Request | None, cluster: "Cluster | None") -> Iterator[CheckResult]:
    """Check that the nodes have the devices of all replicas."""
    if not (request and cluster):
        return
    from harness_llm.replicas.ray.launcher import ray_launcher  # noqa: PLC0415 - loads zmq

    accelerated = request.options.gpu != NO_ACCELERATOR
    for plan in request.scenarios:
        try:
            ray_launcher(cluster, plan.config, request.options.engine, accelerated=accelerated)
        except HarnessError as error:
            yield from_error(_CLUSTER, error)
    if len(cluster.nodes) > 1:
        yield not_checked(_CLUSTER, "model and data of the nodes, which are compared after the preparation")


def _machine(
    request: Request | None, cluster: "Cluster | None", part: Part, root: Path
) -> tuple[Mapping[str, str], Ecc]:
    """Facts about this machine, or about all nodes of the cluster together."""
    if request and not cluster and not request.measures_this_host:
        return {}, UNTOLD
    if cluster:
        looks = [node.info for node in cluster.nodes]
        return merged([look.machine for look in looks]), merged_ecc([look.ecc for look in looks])
    in_image = IMAGE_FRAMEWORK if part is Part.HOST else {}
    return restrict_accelerators(detect(root) | in_image, _used_accelerators(request)), read_ecc(root)


def _used_accelerators(request: Request | None) -> int:
    """Return the accelerators of all replicas; 0 for running servers, on CPUs, and without plans."""
    if request is None or request.options.gpu == NO_ACCELERATOR:
        return 0
    configs = [plan.config for plan in request.scenarios]
    counts = [config.replicas * config.group for config in configs if not config.server_config.url]
    return max(counts, default=request.options.gpu_count or 0)


def _device_lock(options: Options) -> CheckResult:
    """Check that no other process of harness-llm uses the same devices."""
    name = "Device lock"
    try:
        with hold(options.gpu, f"process {os.getpid()} runs checks"):
            return passed(name, f"no other harness-llm process uses {options.gpu}")
    except HarnessError as error:
        return from_error(name, error)
    except OSError as error:
        return failed(name, str(error), hint="export TMPDIR to a folder that all users of the devices can write")


def _system(request: Request, purpose: Purpose, detected: Mapping[str, str], ecc: Ecc) -> Iterator[CheckResult]:
    yield from check_engine(request, purpose)
    yield from check_acceptance(request)
    yield from check_inferred(request)
    yield from _rules(request)
    system = request.options.system_name
    if purpose is Purpose.SUBMIT and system and system == folder_name(system):
        submission = replace(request.submission, submitter=request.submission.submitter or _UNNAMED)
        yield from check_system(submission, detected, ecc, request.workspace)
    if request.options.gpu != NO_ACCELERATOR and request.options.division != "closed":
        yield from check_ecc(ecc)


def _rules(request: Request | None) -> Iterator[CheckResult]:
    """Check the planned scenarios; on the host side of containers without vLLM there are none."""
    if request:
        yield from check_rules(request)
        yield from check_nodes(request)


def _gpus(loaded: Request, configs: Sequence[EngineConfig], part: Part, root: Path) -> Iterator[CheckResult]:
    """Check the GPUs of this machine that the replicas will use."""
    options = loaded.options
    if options.gpu == NO_ACCELERATOR or any(config.server_config.url for config in configs):
        return
    gpu = load_gpus(Workspace()).get(options.gpu)
    if options.ray:
        yield not_checked(
            "GPUs", "GPUs of other nodes", hint=f"run {command('doctor')} without {name_of('ray')} on each node"
        )
    elif gpu is None:
        yield not_checked("GPUs", f"models/gpus.yaml has no {options.gpu}")
    else:
        wanted = Wanted(
            name=options.gpu,
            gpu=gpu,
            count=max((c.replicas * c.group for c in configs), default=options.gpu_count or gpu.count),
            utilization=max(map(utilization, (c.llm_config for c in configs)), default=DEFAULT_UTILIZATION),
            cuda=None if part is Part.HOST else installed_cuda(versions()),
            selector=_selector(gpu, part),
            without=without_accelerator(loaded.benchmark, rehearsed=loaded.profile.rehearsed),
            visible=_visible(gpu, part),
            opened_here=part is not Part.HOST,
        )
        yield from check_visible_devices(gpu, os.environ)
        in_container = IMAGE_VARIABLE in os.environ
        yield from check_gpus(wanted, read_devices(gpu.vendor, root), in_container=in_container)


def _selector(gpu: Gpu, part: Part) -> str:
    """Environment variable that selects devices; outside NVIDIA's containers, the one that selects theirs."""
    return "NVIDIA_VISIBLE_DEVICES" if part is Part.HOST and gpu.vendor == "10de" else gpu.visible


def _visible(gpu: Gpu, part: Part) -> tuple[str, ...]:
    """Devices that environment variables make visible."""
    named = os.environ.get(gpu.visible) or os.environ.get(_selector(gpu, part), "").removeprefix("all")
    return tuple(name.strip() for name in named.split(",") if name.strip())


def _hosts(cluster: "Cluster | None", root: Path) -> Iterator[CheckResult]:
    """Check host settings, which affect runs with accelerators only."""
    hosts = {node.address: node.info.host for node in cluster.nodes} if cluster else {"": read_host_settings(root)}
    for address, host in hosts.items():
        yield from check_host(host, address)


def _software(request: Request | None, *, usable: bool) -> Iterator[CheckResult]:
    """Check installed software; `usable` as for `check_engine_arguments`."""
    if request:
        yield check_loadgen(request)
        yield from check_servers(request)
        yield from check_vllm_build(request)
        yield from _writing(BY_VLLM, lambda: check_engine_arguments(request, usable=usable))
        yield from check_compilers(request)
        yield from check_availability(request)
        yield from _writing(SCORING, lambda: check_scoring(request))
        yield from _writing(OFFICIAL, lambda: check_official_scripts(request))


def _writing(name: str, check: Callable[[], Iterable[CheckResult]]) -> list[CheckResult]:
    """Return the results of a check that writes below build/; `check_folders` reports missing write access."""
    try:
        return list(check())
    except OSError as error:
        return [not_checked(name, str(error))]
