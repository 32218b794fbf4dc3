"""Make targets, scripts and environment variables of other harnesses."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from makefile import make, targets, variable
from terminal import Terminal
from workspaces import make_workspace

from harness_llm.cli import submit_command
from harness_llm.config import inference_checkout
from harness_llm.config.engines import ENGINES
from harness_llm.config.environment import (
    UNUSED,
    VARIABLES,
    from_environment,
    short_name,
    system_name,
    unused_variables,
)
from harness_llm.config.options import Options
from harness_llm.config.request import load_requests
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.make_targets import (
    ENGINE_BUILDS,
    generate_engines,
    link_dirs,
)
from harness_llm.runs.record import State, find_runs

OPTIONS = Options(model="llama2-70b", system_name="box", stand_in=True)
SCRIPTS = sorted(CHECKOUT.glob("submission/*.sh"))


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `harness-llm WORDS` with an environment; gives the options of each benchmark."""
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    make_workspace(tmp_path)
    found: list[Options] = []

    def note(options: Options, *_: object, **__: object) -> None:
        found.extend(request.options for request in load_requests(options, Workspace()))

    monkeypatch.setattr(submit_command, "submit", note)
    monkeypatch.setattr(submit_command, "run", note)

    def ask(line: str, *more: str, **environment: str) -> list[Options]:
        found.clear()
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        done = CommandLine(monkeypatch, capsys)(*line.split(), *more)
        assert done.code == 0, done.err
        return found

    return ask


def test_script_reads_its_options_from_the_environment(asked: Any) -> None:
    line = "submit --model llama2-70b --environment"
    [options] = asked(
        line,
        COMPANY="Acme",
        SYSTEM_NAME="box",
        GPU_NAME="h100",
        GPU_COUNT="8",
        OFFLINE="0",
        INTERACTIVE="1",
        ROUND="v6.0",
    )
    assert options.package
    assert (options.company, options.system_name, options.gpu, options.gpu_count) == ("Acme", "box", "h100", 8)
    assert (options.scenarios, options.tests, options.round) == (
        ("Server", "Interactive"),
        ("performance", "accuracy", "compliance"),
        "v6.0",
    )


def test_options_override_the_environment(asked: Any) -> None:
    line = "submit --model llama2-70b --environment --gpu h200 --scenarios offline --tests accuracy --no-package"
    [options] = asked(line, GPU_NAME="h100", OFFLINE="0", SERVER="1", SYSTEM_NAME="box", PACKAGE="1")
    assert (options.gpu, options.scenarios, options.tests, options.package) == (
        "h200",
        ("Offline",),
        ("accuracy",),
        False,
    )


def test_environment_is_read_only_with_its_option(asked: Any) -> None:
    [options] = asked("submit --stand-in --model llama2-70b", COMPANY="Acme", PACKAGE="0", OFFLINE="0")
    assert (options.company, options.tests, options.package) == ("", None, True)
    assert "Offline" in options.scenarios


@pytest.mark.parametrize(
    ("environment", "tests", "packed"),
    [
        ({}, ("performance", "accuracy", "compliance"), True),
        ({"ACCURACY": "0", "PACKAGE": "0"}, ("performance", "compliance"), False),
        ({"PERFORMANCE": "0", "ACCURACY": "0", "COMPLIANCE": "0"}, (), True),
    ],
)
def test_switches_select_tests_and_packaging(
    environment: Mapping[str, str], tests: tuple[str, ...], packed: bool
) -> None:
    found = from_environment(OPTIONS, environment)
    assert (found.tests, found.package) == (tests, packed)


@pytest.mark.parametrize(
    ("environment", "what"),
    [
        ({"ACCURACY": "yes"}, "invalid ACCURACY"),
        ({"INTERACTIVE": "2"}, "invalid INTERACTIVE"),
        ({"GPU_COUNT": "eight"}, "invalid GPU_COUNT"),
        ({"GPU_COUNT": "0"}, "invalid GPU_COUNT"),
        (
            dict.fromkeys(("PERFORMANCE", "ACCURACY", "COMPLIANCE", "PACKAGE"), "0"),
            "no test and no packaging is requested",
        ),
    ],
)
def test_wrong_values_of_variables_are_refused(environment: Mapping[str, str], what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_environment(OPTIONS, environment)
    assert caught.value.what == what


def test_unused_variables_are_named() -> None:
    assert unused_variables(dict.fromkeys(UNUSED, "1") | {"HOME": "/root"}) == [
        f"{n} is not used: {w}" for n, w in UNUSED.items()
    ]
    assert unused_variables({"ENABLE_POWER_SETUP": "0", "RESULTS": ""}) == []


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("AMD EPYC 9554 64-Core Processor", "EPYC_9554"),
        ("Intel(R) Xeon(R) Platinum 8480C", "Xeon_Platinum_8480C"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "Xeon"),
        ("Neoverse-N1", "Neoverse-N1"),
        ("", "cpu"),
    ],
)
def test_processors_have_short_names(model: str, name: str) -> None:
    assert short_name(model) == name


def test_default_system_name_is_that_of_the_scripts_of_amd() -> None:
    assert system_name("mi300x", 8, "EPYC_9554", "2") == "8xMI300X_2xEPYC_9554"
    assert system_name("h100x16", None, "Xeon", "2") == "H100X16_2xXeon"
    assert system_name("cpu", None, "Xeon", "1") == system_name("cpu", 4, "Xeon", "1") == "1xXeon"


@pytest.mark.parametrize(
    ("environment", "start"), [({"GPU_COUNT": "4"}, "4xH100_"), ({}, "8xH100_"), ({"GPU_NAME": "cpu"}, "")]
)
def test_parts_of_the_system_name_are_read_or_detected(environment: dict[str, str], start: str) -> None:
    found = from_environment(
        replace(OPTIONS, system_name=""), {"CPU_NAME": "EPYC_9554", "GPU_NAME": "h100"} | environment
    )
    assert re.fullmatch(rf"{start}\d+xEPYC_9554", found.system_name)


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.name for script in SCRIPTS])
def test_each_script_submits_its_benchmark(tmp_path: Path, script: Path) -> None:
    """The program prints its arguments."""
    program = tmp_path / "harness-llm"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    (tmp_path / "submission").mkdir()
    (tmp_path / "setup").symlink_to(CHECKOUT / "setup")
    (tmp_path / "submission" / script.name).symlink_to(script)
    command = ["sh", tmp_path / "submission" / script.name, "--round", "v6.0"]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=True)
    model = next(f.name for f in (CHECKOUT / "models").iterdir() if re.sub("[-.]", "_", f.name) == script.stem)
    assert done.stdout.split() == ["submit", "--model", model, "--environment", "--round", "v6.0"]


def test_every_published_benchmark_has_a_script() -> None:
    """But for what v5.0 took for a benchmark of its own, and AMD's scripts for a scenario."""
    models = {folder.parent.name for folder in CHECKOUT.glob("models/*/benchmark.yaml")}
    named = {re.sub("[-.]", "_", name) for name in models - {"demo", "llama2-70b-interactive"}}
    assert {script.stem for script in SCRIPTS} == named


def test_makefile_settings_have_the_names_of_the_options() -> None:
    options = dict(re.findall(r"([A-Z_]+):([a-z-]+)", (CHECKOUT / "Makefile").read_text().split("SETTINGS :=")[0]))
    words = {name: word.replace("_name", "").replace("_", "-") for word, name in VARIABLES.items()}
    words["RAY_ADDRESS"] = "ray"  # which the option itself reads
    assert {name: words[name] for name in options} == {n: o.replace("-name", "") for n, o in options.items()}


@pytest.mark.parametrize(("name", "option"), [("STAND_IN", "--stand-in"), ("AGAIN", "--again")])
@pytest.mark.parametrize(("value", "flag"), [("1", True), ("0", False), ("", False)])
def test_make_switch_may_be_off(name: str, option: str, value: str, flag: bool) -> None:
    done = make("--dry-run", "submission", f"{name}={value}")
    assert done.returncode == 0, done.stderr
    assert (option in done.stdout) == flag


@pytest.mark.parametrize("name", ["STAND_IN", "AGAIN"])
def test_other_values_of_a_make_switch_are_refused(name: str) -> None:
    done = make("--dry-run", "submission", f"{name}=yes")
    assert done.returncode == 2
    assert f"invalid {name}=yes; expected: 1 or 0" in done.stderr


def test_make_check_names_its_missing_setting() -> None:
    done = make("--dry-run", "check")
    assert done.returncode == 2
    assert "missing TREE; expected: make check TREE=submission/inference_results_6.1" in done.stderr
    assert '"$TREE"' in make("--dry-run", "check", "TREE=a folder").stdout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("check CATEGORY=edge TREE=x", "unused setting CATEGORY for check; expected: GPU_NAME ROUND "),
        ("download COMPANY=Acme MODEL=gptj", "unused setting COMPANY for download; expected: MODEL "),
        ("clean setup MODEL=gptj", "unused setting MODEL for clean setup; expected: GPU_NAME "),
        ("COMPANY=Acme", "unused setting COMPANY for help; expected: none"),
        ("run_harness ENVIRONMENT=container", "unused setting ENVIRONMENT for run_harness; "),
    ],
)
def test_settings_that_no_goal_uses_are_refused(line: str, message: str) -> None:
    done = make("--dry-run", *line.split())
    assert done.returncode == 2
    assert f"*** {message}" in done.stderr


@pytest.mark.parametrize("line", ["doctor submission MODEL=gptj", "status CATEGORY=edge", "setup check TREE=x"])
def test_settings_that_a_goal_uses_are_accepted(line: str) -> None:
    done = make("--dry-run", *line.split())
    assert done.returncode == 0, done.stderr


def test_exported_settings_are_not_refused() -> None:
    assert make("--dry-run", "clean", MODEL="gptj", COMPANY="Acme").returncode == 0


def test_unknown_target_is_reported_by_make() -> None:
    assert "No rule to make target 'submision'" in make("submision", "MODEL=gptj").stderr


@pytest.mark.parametrize("target", targets())
def test_every_target_declares_its_settings(target: str) -> None:
    assert variable(f"origin uses-{target}") == ["file"]
    assert set(variable(f"uses-{target}")) <= set(variable("SETTINGS"))


def test_status_gets_the_options_of_the_submission() -> None:
    words = [f"{name}=1" for name in variable("WORDS")]
    submission, status = (make("--dry-run", target, *words).stdout for target in ("submission", "status"))
    options = re.findall(r"--[a-z-]+", submission.split("harness-llm submit")[1])
    assert options == re.findall(r"--[a-z-]+", status.split("harness-llm  status")[1].split("; else")[0])
    assert len(options) == len(words)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "/home/me/.cache/huggingface/token"),
        ({"XDG_CACHE_HOME": "/cache"}, "/cache/huggingface/token"),
        ({"XDG_CACHE_HOME": "/cache", "HF_HOME": "/hub"}, "/hub/token"),
        ({"HF_HOME": "/hub", "HF_TOKEN_PATH": "/mine"}, "/mine"),
    ],
)
def test_login_of_huggingface_hub_is_found_where_it_is_stored(environ: dict[str, str], expected: str) -> None:
    done = make("--eval", "shown: ; echo $$HF_TOKEN_PATH", "shown", HOME="/home/me", **environ)
    assert done.stdout == f"{expected}\n"


@pytest.mark.slow
@pytest.mark.engine
def test_test_profile_runs_the_requested_test_only(terminal: Terminal) -> None:
    words = ("submit", "--profile", "test", "--system-name", "box", "--scenarios", "Server", "--tests")
    plan = terminal.run(*words, "accuracy", "--dry-run")
    assert "Server       accuracy     5 samples" in plan.err
    assert "performance" not in plan.err
    done = terminal.run(*words, "performance")
    assert done.code == 0, done.err
    assert "Server performance completed; LoadGen's early stopping needs more queries" in done.err
    runs = find_runs(terminal.workspace.logs, "box")
    assert [(run.run_key.test, run.state) for run in runs] == [("performance", State.INVALID)]
    assert done.out == f"{runs[0].path}\n"
    assert not list(terminal.workspace.submission.glob("inference_results*"))


# NVIDIA's Makefile


@pytest.mark.parametrize(
    ("run_args", "models", "facts"),
    [
        (
            "--benchmarks=gptj --scenarios=offline,server --config_ver=high_accuracy",
            ["gptj"],
            {"scenarios": ("Offline", "Server"), "high_accuracy": True, "tests": ("performance",)},
        ),
        ("--benchmarks gptj,llama2-70b --test_mode=AccuracyOnly", ["gptj", "llama2-70b"], {"tests": ("accuracy",)}),
        (
            "--benchmarks=llama3.1-8b --audit_test=TEST06 --fast",
            ["llama3.1-8b"],
            {"tests": ("TEST06",), "profile": "fast"},
        ),
        ("--test_run --config_ver=default", ["llama3.1-8b"], {"profile": "fast", "high_accuracy": False}),
    ],
)
def test_run_args_select_benchmarks_scenarios_and_tests(
    asked: Any, run_args: str, models: list[str], facts: dict[str, Any]
) -> None:
    found = asked("run --environment --run-args", run_args, MODEL="llama3.1-8b", STAND_IN="1")
    assert [options.model for options in found] == models
    for options in found:
        assert {name: getattr(options, name) for name in facts} == facts
        assert options.system_name


def test_no_engine_needs_engines_generated() -> None:
    assert set(ENGINES) == set(ENGINE_BUILDS)
    assert generate_engines("vllm").startswith("vllm has no engines to generate: ")
    with pytest.raises(ConfigError, match="unknown engine tensorrt"):
        generate_engines("tensorrt")


def test_scratch_space_is_linked_below_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, scratch = Workspace(tmp_path / "checkout"), tmp_path / "scratch"
    (workspace.build / "data").mkdir(parents=True)
    (workspace.build / "models" / "own").mkdir(parents=True)
    for _ in range(2):
        lines = list(link_dirs(workspace, str(scratch)))
        assert [line.split(" ")[1] for line in lines] == ["->", "stays,", "->"]
    assert (workspace.build / "data").readlink() == scratch / "data"
    assert (workspace.build / "models" / "own").is_dir()
    assert {folder.name for folder in scratch.iterdir()} == {"data", "models", "preprocessed_data"}
    monkeypatch.setenv("MLPERF_SCRATCH_PATH", str(scratch))
    assert (workspace.models, workspace.data) == (scratch / "models", scratch / "data")
    assert list(link_dirs(workspace, "")) == ["MLPERF_SCRATCH_PATH is not set: models and data stay below build/"]


def test_unwritable_scratch_space_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentMissing, match="cannot make the scratch space") as caught:
        list(link_dirs(Workspace(tmp_path), str(tmp_path / "file")))
    assert caught.value.where == f"MLPERF_SCRATCH_PATH: {tmp_path}/file/data"


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    done = subprocess.run(["git", *names, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def published(tmp_path: Path) -> tuple[str, list[str]]:
    """A repository, and its two commits."""
    folder = tmp_path / "published"
    folder.mkdir()
    git(folder, "init", "--quiet")
    commits = []
    for text in ("one", "two"):
        (folder / "file").write_text(text)
        git(folder, "add", "file")
        git(folder, "commit", "--quiet", "--message", text)
        commits.append(git(folder, "rev-parse", "HEAD"))
    return f"file://{folder}", commits


def test_checkout_of_inference_is_at_its_pinned_commit(
    tmp_path: Path, published: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(inference_checkout.CHECKOUT_VARIABLE, raising=False)
    url, (first, second) = published
    workspace = Workspace(tmp_path / "checkout")
    assert inference_checkout.checkout(workspace) is None
    for _ in range(2):
        assert first in inference_checkout.clone(workspace.inference, url, first, ())
        assert (workspace.inference / "file").read_text() == "one"
    assert inference_checkout.checkout(workspace) == workspace.inference
    with pytest.raises(ConfigError, match="another commit of mlcommons/inference") as caught:
        inference_checkout.clone(workspace.inference, url, second, ())
    assert caught.value.found == first
    monkeypatch.setenv(inference_checkout.CHECKOUT_VARIABLE, "/elsewhere")
    assert inference_checkout.checkout(workspace) == Path("/elsewhere")


def test_submodules_are_added_to_an_existing_checkout(
    tmp_path: Path, published: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"COUNT": "1", "KEY_0": "protocol.file.allow", "VALUE_0": "always"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)  # git clones no submodule from a file otherwise
    url, _ = published
    above = tmp_path / "above"
    above.mkdir()
    git(above, "init", "--quiet")
    git(above, "submodule", "--quiet", "add", url, "graders/one")
    git(above, "submodule", "--quiet", "add", url, "other")
    git(above, "commit", "--quiet", "--message", "with submodules")
    commit, clone = git(above, "rev-parse", "HEAD"), tmp_path / "clone"
    for submodules in ((), ("graders/one",)):
        inference_checkout.clone(clone, f"file://{above}", commit, submodules)
    assert (clone / "graders/one/file").read_text() == "two"
    assert not list((clone / "other").iterdir())


def test_failed_clone_is_reported_and_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentMissing, match="cannot clone mlcommons/inference") as caught:
        inference_checkout.clone(tmp_path / "inference", f"file://{tmp_path}/nothing", "0" * 40)
    assert "nothing" in caught.value.found
    assert "insteadOf" in caught.value.hint
    assert not list(tmp_path.iterdir())
