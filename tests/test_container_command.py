"""The commands that start and build containers, for every accelerator."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness_llm.containers.arguments import Build, Container, Mount, build_arguments, run_arguments
from harness_llm.containers.container_spec import accelerator_name, image_tag, load_accelerator, load_spec
from harness_llm.containers.from_environment import secret_variables
from harness_llm.containers.secrets import cloudflared_mounts, find_token, with_secrets
from harness_llm.errors import ConfigError

CONTAINER = Container(
    program="docker",
    image="harness-llm-submission:any",
    name="one",
    user="1000:1001",
    mounts=(
        Mount(Path("/home/me/checkout"), "/lab-mlperf-inference"),
        Mount(Path("/data/inference/model"), "/model"),
        Mount(Path("/run/token"), "/run/secrets/hf_token", writable=False),
    ),
    groups=(44, 109),
    labels={"harness-llm.checkout": "/home/me/checkout"},
)
START = [
    *("docker", "run", "--rm", "--init", "--pull", "never", "--name", "one"),
    *("--label", "harness-llm.checkout=/home/me/checkout"),
]
MOUNTS = [
    *("--mount", "type=bind,source=/home/me/checkout,target=/lab-mlperf-inference"),
    *("--mount", "type=bind,source=/data/inference/model,target=/model"),
    *("--mount", "type=bind,source=/run/token,target=/run/secrets/hf_token,readonly"),
]
UNLIMITED = ("--pids-limit", "-1")
ENVIRONMENT = [
    *("--env", "LAB_MODEL=/model", "--env", "LAB_DATASET=/data", "--env", "HOME=/tmp", "--env", "USER=harness"),
    *("--env", "XDG_CACHE_HOME=/lab-mlperf-inference/build/cache"),
    *("--env", "TORCHINDUCTOR_CACHE_DIR=/lab-mlperf-inference/build/cache/torchinductor"),
    *("--env", "TRITON_HOME=/lab-mlperf-inference/build/cache/triton"),
    *("--env", "DO_NOT_TRACK=1", "--env", "VLLM_NO_USAGE_STATS=1"),
]


def run(gpu: str, container: Container, *command: str) -> list[str]:
    return run_arguments(load_accelerator(gpu)[1], container, command)


def test_rocm_container_gets_devices_and_their_groups() -> None:
    container = replace(CONTAINER, inherited=("HIP_VISIBLE_DEVICES",), stdin=True, terminal=True)
    assert run("mi300x", container, "bash") == [
        *START,
        *("--interactive", "--tty", "--user", "1000:1001", "--group-add", "44", "--group-add", "109"),
        *("--network", "host", "--cap-drop", "ALL", "--cap-add", "SYS_NICE", "--cap-add", "SYS_PTRACE"),
        *("--security-opt", "no-new-privileges", "--security-opt", "label=disable", "--shm-size", "32g", *UNLIMITED),
        *("--ulimit", "memlock=-1:-1", "--ulimit", "stack=67108864:67108864"),
        *("--device", "/dev/kfd", "--device", "/dev/dri"),
        *MOUNTS,
        *ENVIRONMENT,
        *("--env", "HIP_VISIBLE_DEVICES", "harness-llm-submission:any", "bash"),
    ]


def test_cuda_container_gets_devices_from_the_nvidia_toolkit() -> None:
    container = replace(CONTAINER, groups=(), arguments=("--cpuset-cpus", "0-7", "-v", "/scratch:/scratch"))
    assert run("h200", container, "make", "submission", "COMPANY=A B") == [
        *START,
        *("--user", "1000:1001"),
        *("--network", "host", "--cap-drop", "ALL", "--cap-add", "SYS_NICE", "--cap-add", "SYS_PTRACE"),
        *("--security-opt", "no-new-privileges", "--security-opt", "label=disable", "--shm-size", "32g", *UNLIMITED),
        *("--ulimit", "memlock=-1:-1", "--ulimit", "stack=67108864:67108864"),
        *("--gpus", "all"),
        *MOUNTS,
        *ENVIRONMENT,
        *("--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
        *("--cpuset-cpus", "0-7", "-v", "/scratch:/scratch"),
        *("harness-llm-submission:any", "make", "submission", "COMPANY=A B"),
    ]


def test_cpu_container_gets_no_device() -> None:
    assert run("cpu", replace(CONTAINER, groups=()), "true") == [
        *START,
        *("--user", "1000:1001", "--network", "host", "--cap-drop", "ALL", "--cap-add", "SYS_NICE"),
        *("--security-opt", "no-new-privileges", "--security-opt", "label=disable", "--shm-size", "2g", *UNLIMITED),
        *MOUNTS,
        *ENVIRONMENT,
        *("harness-llm-submission:any", "true"),
    ]


def test_subset_of_nvidia_devices_is_renumbered_inside() -> None:
    command = run("h100", replace(CONTAINER, visible=("2", "GPU-5f")), "true")
    assert command[command.index("--gpus") + 1] == '"device=2,GPU-5f"'
    assert "CUDA_VISIBLE_DEVICES=0,1" in command
    narrowed = replace(CONTAINER, visible=("2", "GPU-5f"), inherited=("CUDA_VISIBLE_DEVICES",))
    assert "CUDA_VISIBLE_DEVICES=0,1" not in run("h100", narrowed, "true")


def test_rootless_podman_keeps_the_user() -> None:
    command = run("cpu", replace(CONTAINER, program="podman", podman=True), "true")
    assert command[:2] == ["podman", "run"]
    assert command[command.index("--userns") + 1] == "keep-id"


def test_rootless_podman_keeps_the_groups_of_the_user_for_device_files() -> None:
    command = run("mi300x", replace(CONTAINER, program="podman", podman=True), "true")
    assert [command[i + 1] for i, word in enumerate(command) if word == "--group-add"] == ["keep-groups"]


@pytest.mark.parametrize(("visible", "devices"), [(None, ["all"]), (("2", "GPU-5f"), ["2", "GPU-5f"])])
def test_podman_gets_nvidia_devices_by_cdi_names(visible: tuple[str, ...] | None, devices: list[str]) -> None:
    command = run("h200", replace(CONTAINER, program="podman", podman=True, visible=visible), "true")
    assert [command[i + 1] for i, word in enumerate(command) if word == "--device"] == [
        f"nvidia.com/gpu={name}" for name in devices
    ]
    assert "--gpus" not in command


def test_container_user_of_rootless_docker_is_root() -> None:
    command = run("mi300x", replace(CONTAINER, rootless=True), "true")
    assert command[command.index("--user") + 1] == "0:0"
    assert not {"--group-add", "--userns"} & {*command}


def test_comma_in_a_mount_path_is_quoted() -> None:
    assert str(Mount(Path("/a,b"), "/model")) == 'type=bind,"source=/a,b",target=/model'


@pytest.mark.parametrize("name", ["rocm", "cuda", "cpu"])
def test_no_container_is_privileged(name: str) -> None:
    command = run_arguments(load_spec().accelerators[name], CONTAINER, ["true"])
    assert not {"--privileged", "/dev/mem", "SYS_ADMIN", "seccomp=unconfined", "--ipc"} & {*command}


def test_build_arguments_contain_no_secret_and_no_proxy_value() -> None:
    build = Build(
        program="docker",
        tag="harness-llm-submission:cuda",
        file=Path("/c/setup/Dockerfile"),
        context=Path("/c"),
        arguments={"BASE_IMAGE": "vllm/vllm-openai:v1", "IMAGE": "any"},
        inherited=("HTTPS_PROXY",),
        labels={"harness-llm.rounds": "v6.0"},
        secrets={"pip.conf": Path("/c/build/containers/pip.conf")},
    )
    assert build_arguments(build) == [
        *("docker", "build", "--network", "host", "--progress", "plain"),
        *("--tag", "harness-llm-submission:cuda", "--file", "/c/setup/Dockerfile"),
        *("--build-arg", "BASE_IMAGE=vllm/vllm-openai:v1", "--build-arg", "IMAGE=any", "--build-arg", "HTTPS_PROXY"),
        *("--secret", "id=pip.conf,src=/c/build/containers/pip.conf", "--label", "harness-llm.rounds=v6.0", "/c"),
    ]


@pytest.mark.parametrize(
    ("gpu", "name"), [("mi300x", "rocm"), ("mi355x", "rocm"), ("h100", "cuda"), ("a800", "cuda"), ("cpu", "cpu")]
)
def test_each_gpu_uses_the_image_of_its_platform(gpu: str, name: str) -> None:
    assert accelerator_name(gpu) == name
    assert image_tag("submission", name) == f"harness-llm-submission:{name}"


def test_unknown_gpu_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown accelerator mi999\n.*GPU_NAME\n.*expected: mi300x"):
        accelerator_name("mi999")


# Tokens in containers; tests/containers looks for them with a real daemon


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HUGGINGFACE_ACCESS_TOKEN": "a", "HF_TOKEN": "b", "HF_TOKEN_PATH": "named"}, "a"),
        ({"HF_TOKEN": " b\n", "HF_TOKEN_PATH": "named"}, "b"),
        ({"HF_TOKEN": "", "HF_TOKEN_PATH": "named"}, "of the file"),
        ({"HF_TOKEN_PATH": "nowhere"}, ""),
        ({}, "of the login"),
        ({"HF_HOME": "hub"}, "of HF_HOME"),
        ({"XDG_CACHE_HOME": "cache"}, "of XDG_CACHE_HOME"),
    ],
)
def test_token_is_read_from_variable_or_login(environ: dict[str, str], expected: str, tmp_path: Path) -> None:
    (tmp_path / "named").write_text("of the file\n")
    for folder, text in (("hub", "of HF_HOME"), ("cache/huggingface", "of XDG_CACHE_HOME")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "token").write_text(text)
    login = tmp_path / ".cache" / "huggingface" / "token"
    login.parent.mkdir(parents=True)
    login.write_text("of the login\n")
    paths = ("HF_TOKEN_PATH", "HF_HOME", "XDG_CACHE_HOME")
    found = {name: str(tmp_path / value) if name in paths else value for name, value in environ.items()}
    assert find_token(found, tmp_path) == expected


def test_unreadable_token_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unreadable file of the Hugging Face token"):
        find_token({"HF_TOKEN_PATH": str(tmp_path)}, tmp_path)


def test_secret_files_are_private_and_removed() -> None:
    own = replace(CONTAINER, mounts=(), user=f"{os.getuid()}:{os.getgid()}")
    with with_secrets(own, "hf_secret", {}) as container:
        (mount,) = container.mounts
        assert mount.source.read_text() == "hf_secret"
        assert mount.source.stat().st_mode & 0o777 == 0o400
        assert mount.source.parent.stat().st_mode & 0o777 == 0o700
        assert str(mount).endswith(",target=/run/secrets/hf_token,readonly")
        assert container.environment["HF_TOKEN_PATH"] == mount.target
        assert run("cpu", container, "true")[-2:] == ["harness-llm-submission:any", "true"]
    assert not mount.source.parent.exists()
    with with_secrets(own, "", {}) as container:
        assert container.mounts == ()


def test_secret_variables_reach_the_command_by_a_private_file() -> None:
    value = "it's $HOME"
    asked = secret_variables(load_accelerator("cpu")[1], {"CF_ACCESS_CLIENT_SECRET": value, "CF_ACCESS_CLIENT_ID": ""})
    own = replace(CONTAINER, mounts=(), user=f"{os.getuid()}:{os.getgid()}")
    with with_secrets(own, "", asked) as container:
        (mount,) = container.mounts
        assert mount.source.stat().st_mode & 0o777 == 0o400
        command = run("cpu", container, "printenv", "CF_ACCESS_CLIENT_SECRET")
        inside = [
            word.replace(mount.target, str(mount.source)) for word in command[command.index(container.image) + 1 :]
        ]
        assert subprocess.run(inside, capture_output=True, text=True, check=True).stdout == f"{value}\n"
    assert value not in " ".join(command)


def test_login_of_cloudflared_is_mounted_with_its_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin/cloudflared"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert cloudflared_mounts(tmp_path) == []
    (tmp_path / ".cloudflared").mkdir()
    login = cloudflared_mounts(tmp_path)
    own = replace(CONTAINER, mounts=(), user=f"{os.getuid()}:{os.getgid()}")
    with with_secrets(own, "", {}, login) as container:
        assert [str(mount) for mount in container.mounts] == [
            f"type=bind,source={program},target=/usr/local/bin/cloudflared,readonly",
            f"type=bind,source={tmp_path}/.cloudflared,target=/tmp/.cloudflared,readonly",
        ]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cloudflared_mounts(tmp_path) == []
