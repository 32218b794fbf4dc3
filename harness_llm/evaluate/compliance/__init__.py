"""Compliance tests TEST06, TEST07 and TEST09: verification of the answers of a performance run."""

from collections.abc import Callable

from harness_llm.evaluate.compliance import test06, test07, test09
from harness_llm.evaluate.compliance.evidence import Evidence, Verdict

TESTS: dict[str, Callable[[Evidence], Verdict]] = {
    "TEST06": test06.judge,
    "TEST07": test07.judge,
    "TEST09": test09.judge,
}
"""Function that judges a run, by test."""

__all__ = ["TESTS", "Evidence", "Verdict"]
