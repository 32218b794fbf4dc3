"""The official submission checker, run from a checkout of mlcommons/inference."""

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE, URL
from harness_llm.errors import EnvironmentMissing

_ARGUMENTS = ((), ("--submission-exceptions",))
_LAST = 20


@dataclass(frozen=True)
class OfficialVerdict:
    """Output of one run of the official checker.

    Attributes:
        arguments: besides tree, round and csv; some violations are reported only with --submission-exceptions.
        exit_code: 0 if it accepts the tree.
        errors: lines with ERROR.
        tail: last lines, with the traceback of a crash.
        summary: content of its CSV file, which lists the accepted results.
    """

    arguments: tuple[str, ...]
    exit_code: int
    errors: list[str]
    tail: list[str]
    summary: str = ""

    @property
    def passed(self) -> bool:
        """Whether it accepts the tree."""
        return self.exit_code == 0


def run_official(tree: Path, round_name: str, inference_dir: Path) -> list[OfficialVerdict]:
    """Run the official checker, plain and with `--submission-exceptions`.

    Args:
        tree: the folder that contains closed/ or open/.
        round_name: for example v6.1.
        inference_dir: a checkout of mlcommons/inference.

    Raises:
        EnvironmentMissing: the checkout has no submission checker.
    """
    folder = inference_dir / "tools" / "submission"
    if not (folder / "submission_checker" / "main.py").is_file():
        raise EnvironmentMissing(
            "missing official submission checker",
            where=str(folder),
            expected="a checkout of mlcommons/inference",
            hint=f"make build; or git clone {URL}, and set {CHECKOUT_VARIABLE} to its path",
        )
    return [_run(tree.resolve(), round_name, folder, arguments) for arguments in _ARGUMENTS]


def _run(tree: Path, round_name: str, folder: Path, arguments: tuple[str, ...]) -> OfficialVerdict:
    with tempfile.TemporaryDirectory() as scratch:
        summary = Path(scratch, "summary.csv")
        done = subprocess.run(
            [
                *(sys.executable, "-B", "-m", "submission_checker.main"),
                *("--input", str(tree), "--version", round_name, "--csv", str(summary)),
                *arguments,
            ],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        text = summary.read_text() if summary.is_file() else ""
    lines = done.stdout.splitlines()
    return OfficialVerdict(arguments, done.returncode, [x for x in lines if " ERROR" in x], lines[-_LAST:], text)
