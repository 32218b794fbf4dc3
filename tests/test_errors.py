import pytest

from harness_llm.errors import ConfigError, EnvironmentMissing, GateFailed, HarnessError, RunFailed


@pytest.mark.parametrize(
    ("error", "code"), [(GateFailed, 1), (ConfigError, 2), (EnvironmentMissing, 3), (RunFailed, 4)]
)
def test_each_error_has_its_exit_code(error: type[HarnessError], code: int) -> None:
    assert error("something is wrong").exit_code == code
    assert issubclass(error, HarnessError)


def test_the_text_is_one_fact_a_line_and_the_hint_stands_apart() -> None:
    error = ConfigError("a key is unknown", where="user.conf:4", expected="one of a, b", found="c", hint="write a")
    assert str(error) == (
        "a key is unknown\n  where: user.conf:4\n  expected: one of a, b\n  found: c\n\nhint: write a"
    )


def test_what_is_not_known_has_no_line() -> None:
    assert str(RunFailed("the engine ended")) == "the engine ended"
    assert str(RunFailed("the engine ended", found="code 9")) == "the engine ended\n  found: code 9"
