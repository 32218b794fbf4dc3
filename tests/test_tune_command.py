"""`harness-llm tune` refuses wrong options before it starts a process."""

import pytest
from command_line import CommandLine


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


WORDS = ("tune", "--model", "demo", "--system-name", "box", "--engine", "replay")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--profile", "test"), ("runs of the profile test are too short for a target", "--profile fast or valid")),
        (("--profile", "fast", "--write"), ("values found with the replay engine, which computes nothing",)),
        (("--profile", "fast", "--budget", "soon"), ("invalid duration", "--budget", "found: soon")),
        (("--model", "gptj,llama2-70b"), ("tune accepts one benchmark", "found: gptj,llama2-70b")),
    ],
)
def test_wrong_options_are_refused(command_line: CommandLine, more: tuple[str, ...], said: tuple[str, ...]) -> None:
    done = command_line(*WORDS, *more)
    assert done.code == 2
    assert not [text for text in said if text not in done.err], done.err
