"""Rules on the compliance tests of a result."""

from collections.abc import Iterator
from pathlib import Path

from harness_llm.check.findings import Fault, Rule, rule
from harness_llm.check.tree import Result
from harness_llm.compliance import test06
from harness_llm.loadgen.logs import ACCURACY

_SHOWN = 3


def _present(result: Result) -> list[tuple[str, Path]]:
    tests = ((test, result.compliance(test)) for test in result.rules.compliance)
    return [(test, folder) for test, folder in tests if folder.is_dir()]


@rule("compliance", "compliance_check.py, dir_exists_check; constants.py:311-328")
def compliance(result: Result) -> Iterator[Fault]:
    """A compliance test is missing."""
    present = {test for test, _ in _present(result)}
    for test in result.rules.compliance:
        if result.submitter.enforced and test not in present:
            yield Fault(result.compliance(test), f"{test} of each scenario", "no such folder")


@rule("compliance-verdict", "compliance_check.py:323-339", hint="mend what it names and run the test again")
def compliance_verdict(result: Result) -> Iterator[Fault]:
    """A compliance test did not pass."""
    for test, folder in _present(result):
        path = folder / test06.VERDICT
        lines = {line.strip() for line in path.read_text(errors="replace").splitlines()} if path.is_file() else set()
        for group in result.round.compliance[test].passes:
            if lines.isdisjoint(group):
                subject = group[0].rpartition(":")[0]
                found = next((line for line in sorted(lines) if line.startswith(subject)), "no such line")
                yield Fault(path, " or ".join(group), found)


@rule("test06-log", "compliance/TEST06/run_verification.py", hint="the answers must be what LoadGen was told")
def test06_log(result: Result) -> Iterator[Fault]:
    """The answers of TEST06 do not bear its verdict out."""
    for test, folder in _present(result):
        path = folder / "accuracy" / ACCURACY
        if test != "TEST06":
            continue
        verdict = test06.verify_log(path, result.scenario, result.rules.eos_ids)
        if not verdict.passed:
            more = len(verdict.failures) - _SHOWN
            found = "; ".join(verdict.failures[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
            yield Fault(path, "first token, end and length as claimed", found)


JUDGED: tuple[Rule[Result], ...] = (compliance, compliance_verdict, test06_log)
