"""Verdicts of compliance tests from the official scripts (compliance/TEST*/run_verification.py)."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from harness_llm.config.benchmark import Benchmark
from harness_llm.config.rules import ComplianceTest
from harness_llm.errors import EnvironmentMissing, GateFailed, RunFailed
from harness_llm.evaluate.official.output import OfficialOutput, from_harness, from_script, require_checkout

_SCRIPT = "compliance/{test}/run_verification.py"
_AUDIT = "compliance/{test}/{benchmark}/audit.config"
_SCORED = "scored.txt"
_DEFAULT_EOS = 2  # of TEST06's script; an id given as an option is compared as a string and never matches


def verify_officially(
    test: str, rules: ComplianceTest, benchmark: Benchmark, scenario: str, run: Path, *, scored: OfficialOutput | None
) -> OfficialOutput:
    """Verify a run with the official script; return harness-llm's verdict if the script cannot run.

    Args:
        run: directory of the run, with harness-llm's verdict.
        scored: output of the accuracy script on the answers of this run, for tests of accuracy.

    Raises:
        GateFailed: the verdicts of the script and harness-llm differ.
        RunFailed: the script wrote no verdict.
    """
    own = (run / rules.verdict).read_text()
    try:
        folder = _checkout(test)
        options = _options(test, benchmark, scenario, folder, scored)
    except EnvironmentMissing as error:
        return from_harness(own, error)
    script = _SCRIPT.format(test=test)
    text = _run(folder / script, rules.verdict, run, options, scored)
    if _passes(text, rules) != _passes(own, rules):
        raise GateFailed(
            f"the official script of {test} gives another verdict than harness-llm",
            where=f"{run}, {script}",
            expected=own.strip(),
            found=text.strip(),
            hint="report this with both outputs; the results were not packaged",
        )
    return from_script(text, folder, script)


def _checkout(test: str) -> Path:
    folder = require_checkout()
    script = folder / _SCRIPT.format(test=test)
    if not script.is_file():
        raise EnvironmentMissing(f"missing script of {test} in mlcommons/inference", where=str(script))
    return folder


def _options(test: str, benchmark: Benchmark, scenario: str, folder: Path, scored: OfficialOutput | None) -> list[str]:
    """Options of the script; raises EnvironmentMissing if TEST07 has no official scores."""
    if test == "TEST06":
        eos = benchmark.sampling.stop_token_ids
        named = [] if _DEFAULT_EOS in eos else ["--eos_token_id", str(eos[0])]
        return ["--scenario", scenario, *named]
    audit = ["--audit-config", str(folder / _AUDIT.format(test=test, benchmark=benchmark.name))]
    if test == "TEST07":
        if scored is None or not scored.script:
            raise EnvironmentMissing("the accuracy script did not run", found=scored.reason if scored else "")
        return [*audit, "--accuracy-script", f"cat {_SCORED}"]
    return audit


def _run(script: Path, verdict: str, run: Path, options: Sequence[str], scored: OfficialOutput | None) -> str:
    """Run the script in a temporary folder; it writes its verdict into the working directory or the output folder."""
    with TemporaryDirectory() as scratch:
        if scored:
            Path(scratch, _SCORED).write_text(scored.text)
        folders = ("--compliance_dir", str(run), "--output_dir", scratch)
        done = subprocess.run(
            [sys.executable, "-B", str(script), *folders, *options],
            cwd=scratch,
            capture_output=True,
            text=True,
            check=False,
        )
        written = next(Path(scratch).glob(f"TEST*/{verdict}"), None)
        if written is None:
            last = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
            raise RunFailed("the official script wrote no verdict", where=f"{run}, {script}", found=last)
        return written.read_text()


def _passes(text: str, rules: ComplianceTest) -> bool:
    """Whether the official checker accepts a verdict."""
    lines = {line.strip() for line in text.splitlines()}
    return not any(lines.isdisjoint(group) for group in rules.passes)
