"""`harness-llm tune` refuses wrong options before it starts a process."""

import io

import pytest
from command_line import CommandLine
from rich.console import Console

from harness_llm.cli.tune_command import _warn_of_burst
from harness_llm.config.options import Options
from harness_llm.config.request import load_requests
from harness_llm.paths import Workspace
from harness_llm.pipeline.panel import Panel
from harness_llm.runs.trial_store import What


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


WORDS = ("tune", "--model", "demo", "--system-name", "box", "--engine", "replay")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ("--profile", "test"),
            ("runs of the profile test are too short for a target", "hint: --profile fast, or --profile valid"),
        ),
        (
            ("--profile", "fast", "--write"),
            ("values found with the replay engine, which computes nothing", "hint: omit --write"),
        ),
        (("--profile", "fast", "--budget", "soon"), ("invalid duration", "--budget", "found: soon")),
        (("--model", "gptj,llama2-70b"), ("tune accepts one benchmark", "found: gptj,llama2-70b")),
    ],
)
def test_wrong_options_are_refused(command_line: CommandLine, more: tuple[str, ...], said: tuple[str, ...]) -> None:
    done = command_line(*WORDS, *more)
    assert done.code == 2
    assert not [text for text in said if text not in done.err], done.err


@pytest.mark.parametrize(
    ("profile", "what", "burst"),
    [
        ("smoke", "target", True),
        ("smoke", "both", True),
        ("smoke", "engine", False),
        ("fast", "target", False),
        ("valid", "target", False),
    ],
)
def test_target_of_a_burst_is_announced(profile: str, what: What, burst: bool) -> None:
    request = load_requests(Options(model="demo", profile=profile, system_name="box"), Workspace())[0]
    said = io.StringIO()
    _warn_of_burst(request.profile, what, Panel(Console(file=said, width=200)))
    assert ("their target is that of a burst" in said.getvalue()) is burst
