"""Check a submission tree, of any submitter, against the rules of a round."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from harness_llm.checker import accuracy_rules as accuracy
from harness_llm.checker import compliance_rules as compliance
from harness_llm.checker import file_rules as files
from harness_llm.checker import log_rules as logs
from harness_llm.checker import measurements_rules as measurements
from harness_llm.checker import performance_rules as performance
from harness_llm.checker import power_rules as power
from harness_llm.checker import structure_rules as structure
from harness_llm.checker import system_rules as system
from harness_llm.checker.findings import Authority, Finding, Rule, Severity, advised, exit_code
from harness_llm.checker.round_rules import ROUND
from harness_llm.checker.submission_tree import Benchmark, Log, Result, System, Tree
from harness_llm.checker.tree_round import TreeRound, choose_round
from harness_llm.config.commands import typed
from harness_llm.config.rules.rounds import Round

__all__ = ["Authority", "Finding", "Severity", "check", "exit_code"]

S = TypeVar("S")

RESULT: tuple[Rule[Result], ...] = (
    *structure.RESULT,
    *measurements.RESULT,
    *accuracy.RESULT,
    *files.RESULT,
    *power.RESULT,
)


def check(tree: Path, rules: Round, chosen: TreeRound | None = None) -> list[Finding]:
    """Check a tree by the rules of a round.

    Rules on results apply to LLM results with LoadGen logs; other results are reported as not judged. In a tree whose
    profile declares small runs, rules on their size do not produce errors.

    Args:
        tree: the folder that contains closed/, network/ or open/.
        rules: the rules of the round.
        chosen: how the round was chosen; default: as given.

    Raises:
        ConfigError: `tree` is not a submission tree.
    """
    chosen, root = chosen or choose_round(tree, rules.round), Tree(tree, rules)
    found = [*_apply(ROUND, chosen, root), *_check_tree(root)]
    if root.small:
        hint = f"{typed(profile='valid')} makes runs of full size"
        found = [replace(f, severity=Severity.SCALE, hint=hint) if f.scale else f for f in found]
    return found


def _check_tree(tree: Tree) -> Iterator[Finding]:
    yield from _apply(files.TREE, tree, tree)
    for submitter in tree.submitters:
        yield from _apply(structure.SUBMITTER, submitter, tree)
        for subject in submitter.systems:
            yield from _check_system(subject, tree)


def _check_system(subject: System, tree: Tree) -> Iterator[Finding]:
    yield from _apply((*system.SYSTEM, *files.SYSTEM), subject, tree)
    for benchmark in subject.benchmarks:
        yield from _check_benchmark(benchmark, tree)


def _check_benchmark(benchmark: Benchmark, tree: Tree) -> Iterator[Finding]:
    yield from _apply(structure.BENCHMARK, benchmark, tree)
    for result in benchmark.results:
        if result.judged:
            yield from _check_result(result, tree)


def _check_result(result: Result, tree: Tree) -> Iterator[Finding]:
    yield from _apply(RESULT, result, tree)
    for finding in _apply(compliance.RESULT, result, tree):
        # Open does not require compliance tests.
        yield finding if result.submitter.enforced else finding.on(advised(finding.citation))
    yield from _check_log(result.performance, performance.LOG, tree)
    yield from _check_log(result.accuracy, accuracy.LOG, tree)


def _check_log(log: Log, rules: Iterable[Rule[Log]], tree: Tree) -> Iterator[Finding]:
    yield from _apply(logs.FILE, log, tree)
    if log.readable:
        yield from _apply((*logs.READABLE, *rules), log, tree)


def _apply(rules: Iterable[Rule[S]], subject: S, tree: Tree) -> Iterator[Finding]:
    for rule in rules:
        yield from rule.findings(subject, tree.path)
