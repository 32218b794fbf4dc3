"""Output of the official checker beside the archive: its summary, and the final report made from it."""

import csv
import io
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness_llm.checker.official import OfficialVerdict
from harness_llm.errors import EnvironmentMissing, RunFailed
from harness_llm.evaluate.official.script_runner import PYTHON, missing_packages

_SCRIPT = "tools/submission/generate_final_report.py"
_COLUMNS = ("Division", "Platform", "Model", "Scenario", "Result", "Units", "Accuracy")


def keep_report(tree: Path, verdicts: Sequence[OfficialVerdict], round_name: str, inference: Path | None) -> list[str]:
    """Write the summary of the official checker as `<tree>_summary.csv`, and the final report; return lines to print.

    Files of an earlier tree are removed in any case. A final report that cannot be made is one of the lines.

    Args:
        round_name: for example v6.1.
        inference: checkout of the checker that gave `verdicts`; None without one.
    """
    for stale in tree.parent.glob(f"{tree.name}_summary*"):
        stale.unlink()
    summary = next((verdict.summary for verdict in verdicts if not verdict.arguments), "")
    if not summary or inference is None:
        return []
    file = tree.with_name(f"{tree.name}_summary.csv")
    file.write_text(summary)
    lines = [render_summary(summary), f"  {file}"]
    try:
        return lines + [f"  {report}" for report in make_final_report(file, round_name, inference)]
    except (EnvironmentMissing, RunFailed) as error:
        return [*lines, f"no final report: {error.line}"]


def render_summary(summary: str) -> str:
    """List the results that the official checker accepted, one per line."""
    rows = list(csv.DictReader(io.StringIO(summary)))
    lines = ["  ".join(row.get(name, "") for name in _COLUMNS) for row in rows]
    return "\n".join([f"official summary: {len(rows)} results", *(f"  {line}" for line in lines)])


def make_final_report(summary: Path, round_name: str, inference: Path) -> list[Path]:
    """Make the final report of a summary with the official script: a spreadsheet and a JSON file beside it.

    Args:
        round_name: for example v6.1.
        inference: a checkout of mlcommons/inference.

    Returns:
        The files; none for a summary without results.

    Raises:
        EnvironmentMissing: the script's packages are missing.
        RunFailed: the script failed.
    """
    if not PYTHON.is_file():
        raise missing_packages()
    version = round_name.removeprefix("v")
    options = ("--input", str(summary), "--version", version, "--repository", f"submissions_inference_v{version}")
    targets = [summary.with_suffix(".xlsx"), summary.with_name(f"{summary.stem}_results.json")]
    for target in targets:
        target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as scratch:  # the script writes ids.json into the working directory
        command = [str(PYTHON), "-B", str(inference.resolve() / _SCRIPT), *options]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise RunFailed("script of the final report failed", where=_SCRIPT, found=last)
    return [target for target in targets if target.is_file()]
