"""The command line without a process for each call."""

import sys
from typing import NamedTuple

import pytest

from harness_llm.cli import main as cli


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class CommandLine:
    """Runs `harness-llm`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: str) -> Done:
        """`harness-llm WORDS`; SIGTERM's handler and -v stay this process's own."""
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["harness-llm", *words])
            patch.setattr(cli.signal, "signal", lambda *_: None)
            patch.setattr(cli.os, "environ", dict(cli.os.environ))
            with pytest.raises(SystemExit) as end:
                cli.main()
        out, err = self._capsys.readouterr()
        code = end.value.code
        return Done(code if isinstance(code, int) else 0, out, err)
