"""Commands that messages and reports compute repeat the options of their runs, and hints do not lead in a circle."""

import json
import re
from html import unescape
from types import SimpleNamespace
from typing import Any, cast

import pytest
from asked import filled
from command_line import CommandLine
from diagnosed_runs import RECORDED, path_of
from printed_commands import options_of, parse_line, settings_of
from submissions import submission_of

from harness_llm.analysis.diagnosis.explanation import explain
from harness_llm.analysis.report.report_page import report_page
from harness_llm.cli.package_command import _again
from harness_llm.cli.tune_command import _next_step
from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.commands import MAKE_VARIABLE
from harness_llm.config.options import Options
from harness_llm.config.request import load_request
from harness_llm.errors import ConfigError
from harness_llm.hardware.pci import accelerators
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.tuning.scenario_tuning import Tuned
from harness_llm.prepare.quantize.recipes import load_recipes
from harness_llm.runs.record import load_run

CASES = sorted(folder.name for folder in RECORDED.iterdir())
CHECKED_OUT = Workspace(CHECKOUT)


def commands_of_report(case: str) -> list[str]:
    html = report_page([RECORDED / case], CHECKED_OUT).html
    shown = (unescape(code) for code in re.findall(r"<(?:code|pre)[^>]*>(.*?)</(?:code|pre)>", html, re.DOTALL))
    return [code for code in shown if code.startswith("harness-llm ")]


@pytest.mark.parametrize("case", CASES)
def test_commands_of_a_report_are_read_by_their_parser(case: str) -> None:
    found = commands_of_report(case)
    assert found
    for line in found:
        parse_line(line)


def test_tune_command_of_a_report_has_the_options_of_the_run() -> None:
    record = load_run(path_of("healthy_vllm")).record
    assert record
    [tune] = [line for line in commands_of_report("healthy_vllm") if line.startswith("harness-llm tune")]
    assert options_of(tune) == options_of(record.command)
    assert options_of(tune).system_name == "pytest-box"


def test_repeating_command_of_a_report_is_of_the_submittable_profile() -> None:
    record = load_run(path_of("healthy_vllm")).record
    assert record
    [again] = [line for line in commands_of_report("healthy_vllm") if "--no-package" in line]
    run = options_of(record.command)
    assert (run.profile, options_of(again).profile) == ("smoke", "valid")
    assert options_of(again).system_name == run.system_name


@pytest.mark.parametrize("case", CASES)
def test_explanation_of_a_run_ends_with_a_command(case: str) -> None:
    if text := explain(load_run(path_of(case))).lines:
        assert parse_line(text.splitlines()[-1].strip())["run"] == path_of(case)


def tuned(edits: int) -> Tuned:
    return cast("Tuned", SimpleNamespace(edits=[None] * edits, record=SimpleNamespace(file="server.tuning.json")))


@pytest.mark.parametrize(("engine", "writable"), [("vllm", True), ("replay", False)])
def test_tune_prints_write_only_for_values_that_it_writes(engine: str, writable: bool) -> None:
    request = load_request(filled(model="demo", gpu="cpu", system_name="box", engine=engine), CHECKED_OUT)
    command = request.options.command("Server", verb="tune")
    text = _next_step(tuned(1), command, request)
    assert ("--write" in text) is writable
    if writable:
        assert parse_line(text.rpartition(": ")[2])["write"]
    assert _next_step(tuned(0), command, request) == "no file changes"


def test_command_after_a_failed_check_packages_the_same_runs() -> None:
    choices = filled(model="demo", gpu="cpu", company="Acme Inc", system_name="box", ray="auto", scenarios="Server")
    found = options_of(_again(choices))
    assert (found.company, found.system_name, found.scenarios, found.ray) == ("Acme Inc", "box", ("Server",), "")


@pytest.mark.parametrize("verb", ["submit", "package"])
def test_command_that_packages_scenarios_together_names_submitter_and_system(verb: str) -> None:
    line = submission_of(load_benchmark("demo", CHECKED_OUT)).together(verb, ["Server", "Offline", "Server"])
    found = options_of(line)
    assert line.startswith(f"harness-llm {verb} ")
    assert (found.model, found.scenarios, found.company) == ("demo", ("Server", "Offline"), "Acme")
    assert found.system_name


def test_hint_for_a_gpu_without_default_recipe_quantizes() -> None:
    recipes = load_recipes(load_benchmark("llama2-70b", CHECKED_OUT), CHECKED_OUT)
    with pytest.raises(ConfigError, match="no default recipe for mine") as caught:
        recipes.choose("", "mine")
    found = parse_line(caught.value.hint)
    assert recipes.choose(found["recipe"], found["gpu"]).name == found["recipe"]


# Hints on a machine without accelerators, followed as they are printed

START = [
    {"gpu": "h100"},
    {"gpu": "cpu"},
    {},
    {"gpu": "h2000"},
    {"profile": "rehearsal"},
    {"profile": "rehearsal", "gpu": "h100"},
    {"stand_in": True, "gpu": "h200"},
    {"model": "demo", "gpu": "h100"},
    {"profile": "valid"},
]


def next_options(hint: str, *, for_make: bool) -> dict[str, Any]:
    """The options of the first alternative in a hint."""
    if for_make:
        settings = settings_of(re.findall(r"[A-Z_]+=[\w.]+(?: [A-Z_]+=[\w.]+)*", hint)[0])
        named = {"STAND_IN": "stand_in", "GPU_NAME": "gpu", "PROFILE": "profile"}
        return {named[name]: value == "1" if name == "STAND_IN" else value for name, value in settings.items()}
    words = re.findall(r"--[a-z-]+(?: \w+)?(?: --[a-z-]+(?: \w+)?)*", hint)[0]
    given = options_of(f"harness-llm submit {words}")
    return given.given


@pytest.mark.skipif(bool(accelerators()), reason="this machine has accelerators")
@pytest.mark.parametrize("for_make", [False, True])
@pytest.mark.parametrize("start", START, ids=lambda start: " ".join(map(str, start.values())) or "none")
def test_hints_lead_to_a_submission_without_accelerators(
    start: dict[str, Any], for_make: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if for_make:
        monkeypatch.setenv(MAKE_VARIABLE, "1")
    monkeypatch.setattr("harness_llm.pipeline.doctor.download_checks.require_access", lambda *_, **__: None)
    harness = CommandLine(monkeypatch, capsys)
    given: dict[str, Any] = {"model": "llama2-70b", "company": "Acme", "system_name": "box", **start}
    seen = []
    while faults := _faults(harness, Options(**given)):
        seen.append(given)
        given = given | next_options(faults[0]["hint"], for_make=for_make)
        assert given not in seen, "the hints lead in a circle"
    assert len(seen) <= 2


def _faults(harness: CommandLine, options: Options) -> list[dict[str, Any]]:
    """The errors of the doctor in options and accelerators."""
    words = options.command(verb="doctor").split()[1:]
    found = json.loads(harness(*words, "--company", options.company, "--json").out)["checks"]
    return [one for one in found if one["level"] == "error" and one["name"] in ("Settings", "GPUs", "Options")]
