from pathlib import Path

import pytest

from harness_llm.errors import ConfigError, EnvironmentMissing, GateFailed, HarnessError, RunFailed, exit_code_of


@pytest.mark.parametrize(
    ("error", "code"), [(GateFailed, 1), (ConfigError, 2), (EnvironmentMissing, 3), (RunFailed, 4)]
)
def test_each_error_has_its_exit_code(error: type[HarnessError], code: int) -> None:
    assert error("something is wrong").exit_code == code
    assert issubclass(error, HarnessError)


def test_error_text_has_one_fact_per_line_and_a_separate_hint() -> None:
    error = ConfigError("a key is unknown", where="user.conf:4", expected="one of a, b", found="c", hint="write a")
    assert str(error) == (
        "a key is unknown\n  where: user.conf:4\n  expected: one of a, b\n  found: c\n\nhint: write a"
    )


def test_unknown_facts_have_no_line() -> None:
    assert str(RunFailed("the engine ended")) == "the engine ended"
    assert str(RunFailed("the engine ended", found="code 9")) == "the engine ended\n  found: code 9"


def test_error_of_the_operating_system_has_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of((tmp_path / "none" / "file").touch) == EnvironmentMissing.exit_code
    assert capsys.readouterr().err.startswith("error: OS error: [Errno 2]")
