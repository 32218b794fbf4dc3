"""The checks of `make submission` in containers: on the host before an image is built, in the image before a stage."""

import contextlib
import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import certifi
import pytest
from machines import hide_tools

from harness_llm.containers import build as builds
from harness_llm.containers import container_stage as stage
from harness_llm.containers import docker_checks as checks
from harness_llm.containers import mounts, start
from harness_llm.containers import submit as submission
from harness_llm.containers.container_spec import Accelerator, load_accelerator
from harness_llm.containers.daemon import Image
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.hardware.gpu_state import Devices
from harness_llm.paths import CHECKOUT
from harness_llm.pipeline.doctor.check_result import CheckResult, Level, failed, not_checked, passed, warned
from harness_llm.pipeline.doctor.doctor_report import to_json

ENVIRON = {"GPU_NAME": "h200", "DOCKER": "/bin/true", "RUN_AS": f"{os.getuid() or 1000}:1000"}


@dataclass
class FakeDaemon:
    """A daemon that answers; `tags` are its images."""

    tags: list[str] = field(default_factory=list)
    free: int | None = 2**40
    runtime: bool = True
    complaint: str = ""
    podman: bool = False
    folder: str = "/var/lib/docker"
    is_rootless: bool = False
    labels: dict[str, str] = field(default_factory=dict)

    def image(self, tag: str) -> Image:
        return Image(tag, "sha256:1", self.labels)

    def has(self, tag: str) -> bool:
        return tag in self.tags

    def free_bytes(self) -> int | None:
        return self.free

    def require_space(self, gib: float) -> None:
        if self.free is not None and self.free < gib * 2**30:
            raise EnvironmentMissing("not enough disk space for the images")

    def has_nvidia_runtime(self) -> bool:
        return self.runtime

    def require_gpus(self, _: str) -> None:
        if self.complaint:
            raise EnvironmentMissing("GPUs of this machine are not accessible in containers", found=self.complaint)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeDaemon:
    """Docker as the checks see it; folders of the checkout are in order."""
    fake = FakeDaemon()
    hide_tools(monkeypatch)
    monkeypatch.setattr(checks.setting, "container_program", lambda _: "/bin/true")
    for module in (checks, submission):
        monkeypatch.setattr(module, "connect", lambda **_: fake)
    monkeypatch.setattr(mounts, "_write_error", lambda *_: None)
    for name in ("require_base", "require_buildx", "require_client"):  # see test_container_daemon.py
        monkeypatch.setattr(checks, name, lambda *_, **__: None)
    monkeypatch.setattr(mounts, "_LAB", tmp_path / "none")
    return fake


def docker(**environ: str) -> dict[str, CheckResult]:
    results = checks.check_docker("cuda", load_accelerator("h200")[1], ENVIRON | environ)
    return {result.name: result for result in results}


def test_correct_machine_has_no_error(daemon: FakeDaemon) -> None:
    found = docker()
    problems = {name: result.level for name, result in found.items() if result.level is not Level.OK}
    assert problems == dict.fromkeys(("GPU driver", "Image build"), Level.NOT_CHECKED)  # hide_tools
    others = {"Docker", "GPU containers", "Container user", "Mounts"}
    assert set(found) == {*problems, *others}


def test_missing_docker_is_one_error(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(**_: object) -> None:
        raise EnvironmentMissing("Docker daemon not reachable", hint="sudo systemctl enable --now docker")

    monkeypatch.setattr(checks, "connect", connect)
    found = docker()
    assert [name for name, result in found.items() if result.level is Level.ERROR] == ["Docker"]
    assert "systemctl" in found["Docker"].hint
    assert set(found) == {"Container user", "Mounts", "Docker"}


def test_missing_run_as_of_root_is_reported_without_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    found = docker(RUN_AS="", DOCKER="/no/docker")
    assert [(name, result.level) for name, result in found.items()] == [
        ("Container user", Level.ERROR),
        ("Docker", Level.ERROR),
    ]
    assert found["Container user"].hint.startswith("set RUN_AS=")


def test_other_daemon_of_the_command_line_is_an_error(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise EnvironmentMissing("docker's command line does not use this Docker daemon")

    monkeypatch.setattr(checks, "require_client", refuse)
    assert docker()["Docker"].level is Level.ERROR


def test_unreadable_token_file_is_an_error(daemon: FakeDaemon, tmp_path: Path) -> None:
    found = docker(HF_TOKEN="", HUGGINGFACE_ACCESS_TOKEN="", HF_TOKEN_PATH=str(tmp_path))
    assert found["Hugging Face token"].exit_code == 2


def test_missing_base_image_is_an_error_before_a_build(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: FakeDaemon, image: str) -> None:
        raise EnvironmentMissing("base image not available", where=image)

    monkeypatch.setattr(checks, "require_base", refuse)
    results = list(checks.check_docker("cuda", load_accelerator("h200")[1], ENVIRON | {"BASE_IMAGE": "none:1"}))
    levels = [(result.level, result.where) for result in results if result.name == "Image build"]
    assert levels == [(Level.ERROR, "none:1"), (Level.NOT_CHECKED, "")]
    daemon.tags = ["harness-llm-submission:cuda", "harness-llm-model_and_dataset:cuda"]
    assert "Image build" not in docker(BASE_IMAGE="none:1")


def test_disk_of_another_machine_is_listed_as_not_checked(daemon: FakeDaemon) -> None:
    def reasons() -> list[str]:
        results = checks.check_docker("cuda", load_accelerator("h200")[1], ENVIRON)
        return [result.found for result in results if result.name == "Image build"]

    assert not [reason for reason in reasons() if "disk space" in reason]
    daemon.free = None
    assert [reason for reason in reasons() if "disk space" in reason]
    daemon.tags = ["harness-llm-submission:cuda", "harness-llm-model_and_dataset:cuda"]
    assert reasons() == []


def test_second_image_requires_only_the_space_of_its_own_layers(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    monkeypatch.setattr(builds, "connect", lambda **_: daemon)
    monkeypatch.setattr(builds, "container_program", lambda _: "/bin/true")
    monkeypatch.setattr(builds, "_prepare", lambda _: None)
    monkeypatch.setattr(builds, "_run", lambda command, _: built.append(command[command.index("--tag") + 1]))
    daemon.free = 10 * 2**30
    with pytest.raises(EnvironmentMissing, match="not enough disk space"):
        builds.build("submission", ENVIRON, printed=False)
    daemon.tags = ["harness-llm-model_and_dataset:cuda"]
    builds.build("submission", ENVIRON, printed=False)
    assert built == ["harness-llm-submission:cuda"]
    daemon.free = 2 * 2**30
    with pytest.raises(EnvironmentMissing, match="not enough disk space"):
        builds.build("submission", ENVIRON, printed=False)


def test_image_of_another_source_is_a_warning(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.tags = ["harness-llm-submission:cuda"]
    accelerator = load_accelerator("h200")[1]
    daemon.labels = builds._labels("submission", "cuda", accelerator, ENVIRON)
    assert "Image" not in docker()
    other = docker(BASE_IMAGE="vllm/vllm-openai:v0.31.0-cu129")["Image"]
    assert other.level is Level.WARNING
    assert other.found == f"base-image: {accelerator.base_image} instead of vllm/vllm-openai:v0.31.0-cu129"
    monkeypatch.setattr(builds.packages, "digest", lambda _: "other pins")
    assert docker()["Image"].found.endswith("instead of other pins")


@pytest.mark.parametrize(
    ("gpu", "base"), [("h200", "vllm/vllm-openai:v0.30.0-cu129"), ("cpu", "python:3.11.14-slim-bookworm")]
)
def test_equal_image_with_another_form_of_the_name_and_fewer_labels_is_not_outdated(gpu: str, base: str) -> None:
    name, accelerator = load_accelerator(gpu)
    labels = builds._labels("submission", name, accelerator, {})
    del labels["harness-llm.packages"]
    found = labels | {builds.BASE_LABEL: base}
    assert found != labels
    assert builds.outdated("submission", name, accelerator, {}, found) == []


def test_missing_gpu_support_of_docker_is_an_error(daemon: FakeDaemon) -> None:
    daemon.runtime = False
    assert "nvidia-ctk" in docker()["GPU containers"].hint
    daemon.tags, daemon.complaint = ["harness-llm-submission:cuda"], "could not select device driver"
    assert docker()["GPU containers"].level is Level.ERROR


@pytest.mark.parametrize(
    ("driver", "warned_of"),
    [
        ("545.23.08", True),
        ("525.147.05", True),
        ("535.247.01", False),
        ("570.195.03", False),
        ("590.10", False),
        ("", False),
    ],
)
def test_driver_branch_that_the_image_refuses_is_a_warning(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, driver: str, warned_of: bool
) -> None:
    monkeypatch.setattr(checks, "read_devices", lambda _: Devices(driver=driver))
    found = docker()
    assert ("GPU driver branch" in found) == warned_of
    assert not warned_of or found["GPU driver branch"].level is Level.WARNING
    assert "GPU driver branch" not in docker(BASE_IMAGE="mine:1-cu128")


def test_driver_branch_is_that_of_the_cuda_version_of_the_image(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "read_devices", lambda _: Devices(driver="545.23.08"))
    assert "cuda>=12.9" in docker()["GPU driver branch"].hint
    monkeypatch.setitem(checks.IMAGE_BRANCHES, (12, 8), (570,))
    assert "cuda>=12.8" in docker(BASE_IMAGE="mine:1-cu128")["GPU driver branch"].hint


def test_user_and_folders_are_checked(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    assert docker(RUN_AS="0:0")["Container user"].exit_code == 2
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(mounts, "_write_error", lambda folder, _: full if folder.name == "submission" else None)
    result = docker()["Mounts"]
    assert (result.level, result.where.endswith("/submission")) == (Level.ERROR, True)
    assert docker(LAB_MODEL="/none/models")["Mounts"].level is Level.ERROR


@dataclass
class Calls:
    """What `submit` did, in order; `environ` is that of the host's checks."""

    done: list[str] = field(default_factory=list)
    environ: Mapping[str, str] = field(default_factory=dict)


@pytest.fixture
def calls(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Builds and stages that are noted instead of made; all checks are in order."""
    calls = Calls()

    def build(image: str, *_: object, **__: object) -> None:
        calls.done.append(f"build {image}")
        daemon.tags.append(f"harness-llm-{image}:cuda")

    def run(_: object, image: str, __: object) -> int:
        calls.done.append(submission.STAGES[image])  # type: ignore[index]
        return 0

    def inside(_: object, options: Sequence[str]) -> list[CheckResult]:
        calls.done.append("inside")
        return [passed("LoadGen", "6.0")]

    def host(options: Sequence[str], _: Accelerator, environ: Mapping[str, str]) -> list[CheckResult]:
        calls.done.append("host")
        calls.environ = environ
        return [warned("CPU governor", "powersave", hint="as root: cpupower")]

    monkeypatch.setattr(submission, "build", build)
    monkeypatch.setattr(submission._Machine, "run", run)
    monkeypatch.setattr(submission._Machine, "check", inside)
    monkeypatch.setattr(checks, "check_host", host)
    return calls


def test_host_is_checked_before_a_build_and_image_before_a_stage(
    calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submission.submit([], ENVIRON) == 0
    assert calls.done == ["host", "build model_and_dataset", "build submission", "inside", "prepare", "submit"]
    assert "warning      CPU governor" in capsys.readouterr().err


def test_space_of_missing_images_is_passed_to_the_checks_of_the_host(
    calls: Calls, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def space() -> str | None:
        assert submission.doctor([], ENVIRON) == 0
        return calls.environ.get("HARNESS_LLM_IMAGE_SPACE")

    assert space() == f"{40 * 2**30}:/var/lib/docker"
    daemon.tags = ["harness-llm-model_and_dataset:cuda"]
    assert space() == f"{4 * 2**30}:/var/lib/docker"
    daemon.free = None  # on another machine
    assert space() is None
    daemon.free, daemon.tags = 2**40, [*daemon.tags, "harness-llm-submission:cuda"]
    assert space() is None


def test_existing_image_is_checked_in_the_first_pass(calls: Calls, daemon: FakeDaemon) -> None:
    daemon.tags = ["harness-llm-submission:cuda"]
    assert submission.submit([], ENVIRON) == 0
    assert calls.done == ["host", "inside", "build model_and_dataset", "prepare", "submit"]


def test_result_of_the_container_replaces_that_of_the_machine_unless_it_repeats_a_problem(
    calls: Calls, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = [not_checked("Settings", "no vLLM"), failed("GPUs", "7"), passed("Names", "Acme"), warned("ASLR", "on")]
    container = [passed("Settings", "demo"), failed("GPUs", "7 in the container"), warned("ASLR", "on")]
    monkeypatch.setattr(checks, "check_host", lambda *_: machine)
    monkeypatch.setattr(submission._Machine, "check", lambda *_: container)
    daemon.tags = ["harness-llm-submission:cuda"]
    assert submission.doctor(["--json"], ENVIRON) == 3
    shown = {check["name"]: check["found"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert shown.items() >= {"Settings": "demo", "GPUs": "7", "Names": "Acme", "ASLR": "on"}.items()
    with pytest.raises(EnvironmentMissing, match=r"GPUs: 7$"):
        submission.submit([], ENVIRON)


@pytest.mark.parametrize("words", [{"RUN_AS": "0:0"}, {"DOCKER_ARGS": "'"}, {"EXTRA_CA_CERT": "/none"}])
def test_wrong_variable_is_one_error_of_doctor_and_submit_with_exit_code_2(
    calls: Calls, capsys: pytest.CaptureFixture[str], words: dict[str, str]
) -> None:
    assert submission.doctor([], ENVIRON | words) == 2
    assert " 1 error, " in capsys.readouterr().out
    with pytest.raises(ConfigError):
        submission.submit([], ENVIRON | words)
    assert "inside" not in calls.done


def test_errors_of_host_and_docker_are_reported_together_before_a_build(
    calls: Calls, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "check_host", lambda *_: [failed("GPUs", "none on the PCI bus")])
    daemon.runtime = False
    with pytest.raises(EnvironmentMissing, match="2 checks failed") as caught:
        submission.submit([], ENVIRON)
    assert "none on the PCI bus" in caught.value.found
    assert "Container Toolkit is not installed" in caught.value.found
    assert calls.done == []


def test_error_of_host_and_image_is_reported_once(
    calls: Calls, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.tags = ["harness-llm-submission:cuda"]
    monkeypatch.setattr(checks, "check_host", lambda *_: [failed("Options", "unknown benchmark none")])
    monkeypatch.setattr(submission._Machine, "check", lambda *_: [failed("Options", "unknown benchmark none")])
    assert submission.doctor([], ENVIRON) == EnvironmentMissing.exit_code
    assert capsys.readouterr().out.count("unknown benchmark none") == 1


def test_error_in_the_image_is_reported_before_the_first_stage(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission._Machine, "check", lambda *_: [failed("Scoring", "no evaluator")])
    with pytest.raises(EnvironmentMissing, match="no evaluator"):
        submission.submit([], ENVIRON)
    assert calls.done == ["host", "build model_and_dataset", "build submission"]


def test_doctor_builds_no_image(calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    assert submission.doctor(["--json"], ENVIRON) == 0
    assert calls.done == ["host"]
    found = {result["name"]: result for result in json.loads(capsys.readouterr().out)["checks"]}
    assert found["Software"]["level"] == "not checked"


def test_checks_of_the_host_use_the_certificates_of_the_containers(tmp_path: Path) -> None:
    accelerator, scratch = load_accelerator("cpu")[1], tmp_path
    found = checks._variables(accelerator, {"EXTRA_CA_CERT": certifi.where()}, scratch)
    assert found["SSL_CERT_FILE"] == str(scratch / "ca.pem")
    assert "BEGIN CERTIFICATE" in (scratch / "ca.pem").read_text()
    assert checks._variables(accelerator, {"EXTRA_CA_CERT": "/none"}, scratch) == {}


def test_host_checks_run_on_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environ = {**os.environ, "HARNESS_LLM_WORKSPACE": str(checks.__file__).partition("/harness_llm/")[0]}
    options = ["--model", "demo", "--gpu", "cpu", "--company", "Acme", "--system-name", "box"]
    found = checks.check_host(options, load_accelerator("cpu")[1], environ)
    assert {result.level for result in found if result.name != "Device lock"} == {Level.OK}
    assert "Settings" in {result.name for result in found}
    wrong = checks.check_host(["--no-such-option"], load_accelerator("cpu")[1], environ)
    assert [(result.level, result.exit_code) for result in wrong] == [(Level.ERROR, 2)]
    assert "--no-such-option" in wrong[0].observed


def inside(monkeypatch: pytest.MonkeyPatch, program: Path, script: str) -> list[CheckResult]:
    """The results of the checks in the image, where `script` answers as docker."""
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(checks.setting, "container_program", lambda _: str(program))
    monkeypatch.setattr(start, "prepare", lambda *_: None)
    monkeypatch.setattr(start, "find_token", lambda *_: "")
    monkeypatch.setattr(start, "offer", contextlib.nullcontext)
    return submission._machine("cpu", load_accelerator("cpu")[1], ENVIRON).check(["--model", "demo"])


def test_image_checks_run_in_a_container(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    results = json.dumps(to_json([failed("Scoring", "no evaluator")]))
    script = f"echo \"$@\" > {tmp_path}/asked\necho '{results}'\nexit 3"
    assert inside(monkeypatch, tmp_path / "docker", script) == [failed("Scoring", "no evaluator")]
    assert (tmp_path / "asked").read_text().endswith("harness-llm doctor --part container --json --model demo\n")


def test_secret_variables_reach_the_image_as_a_file(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(ENVIRON, "CF_ACCESS_CLIENT_SECRET", "hush")
    inside(monkeypatch, tmp_path / "docker", f"echo \"$@\" > {tmp_path}/asked\necho '{json.dumps(to_json([]))}'")
    asked = (tmp_path / "asked").read_text()
    assert "target=/run/secrets/variables.sh,readonly" in asked
    assert "hush" not in asked


def test_message_of_docker_is_reported_where_a_container_does_not_start(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = "echo 'docker: error setting rlimit type 8: operation not permitted' >&2\nexit 125"
    [result] = inside(monkeypatch, tmp_path / "docker", script)
    assert (result.level, result.exit_code) == (Level.ERROR, EnvironmentMissing.exit_code)
    assert "rlimit type 8" in result.observed
    assert "DOCKER_ARGS='--ulimit" in result.hint


def test_names_of_built_images_are_printed_before_the_output_of_a_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written))  # as a pipe: text is buffered
    sys.stdout.write("image\n")
    stage._show([(b"tree\n", None)], io.BytesIO())
    assert written.getvalue() == b"image\ntree\n"


def test_output_of_a_stage_is_logged_after_its_reader_has_exited(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.BytesIO):
        def write(self, _: object) -> int:
            raise BrokenPipeError

    log = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(Gone())))  # type: ignore[type-var]
    stage._show([(b"one\n", None), (b"two\n", None)], log)  # type: ignore[arg-type]
    assert log.getvalue() == b"one\ntwo\n"


def test_hangup_interrupts_a_stage_unless_nohup_disables_it() -> None:
    program = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.Handlers[sys.argv[1]])
from harness_llm.containers.container_stage import _interrupting
with _interrupting():
    signal.raise_signal(signal.SIGHUP)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run([*command, "SIG_DFL"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert "KeyboardInterrupt" in done.stderr
    subprocess.run([*command, "SIG_IGN"], cwd=CHECKOUT, check=True)
