"""The token on its way into a container; what does not tell of it is looked at with a real daemon."""

import os
from pathlib import Path

import pytest

from harness_llm.containers.secrets import find_token, token_mounts
from harness_llm.errors import ConfigError


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HUGGINGFACE_ACCESS_TOKEN": "a", "HF_TOKEN": "b", "HF_TOKEN_PATH": "named"}, "a"),
        ({"HF_TOKEN": " b\n", "HF_TOKEN_PATH": "named"}, "b"),
        ({"HF_TOKEN": "", "HF_TOKEN_PATH": "named"}, "of the file"),
        ({"HF_TOKEN_PATH": "nowhere"}, ""),
        ({}, "of the login"),
    ],
)
def test_where_a_token_comes_from(environ: dict[str, str], expected: str, tmp_path: Path) -> None:
    (tmp_path / "named").write_text("of the file\n")
    login = tmp_path / ".cache" / "huggingface" / "token"
    login.parent.mkdir(parents=True)
    login.write_text("of the login\n")
    found = {name: str(tmp_path / value) if name == "HF_TOKEN_PATH" else value for name, value in environ.items()}
    assert find_token(found, tmp_path) == expected


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unreadable file"):
        find_token({"HF_TOKEN_PATH": str(tmp_path)}, tmp_path)


def test_the_file_is_private_and_gone_afterwards() -> None:
    with token_mounts("hf_secret", os.getuid(), os.getgid()) as mounts:
        (mount,) = mounts
        assert mount.source.read_text() == "hf_secret"
        assert mount.source.stat().st_mode & 0o777 == 0o400
        assert mount.source.parent.stat().st_mode & 0o777 == 0o700
        assert str(mount).endswith(",target=/run/secrets/hf_token,readonly")
    assert not mount.source.parent.exists()
    with token_mounts("", os.getuid(), os.getgid()) as mounts:
        assert mounts == ()
