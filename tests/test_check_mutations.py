"""Trees broken in one place: check finds that fault and no other. Every rule has a row in the table.

Findings of the tree before the change are subtracted.
"""

import functools
import importlib
import os
import pkgutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from made_mutations import MADE
from mutations import NET, OK, V51, V60, Base
from published_mutations import PUBLISHED

import harness_llm.checker
from harness_llm.checker.check import Authority, Finding, check
from harness_llm.checker.findings import Rule
from harness_llm.checker.official import run_official
from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE
from harness_llm.config.rules import load_round

MUTATIONS = [*PUBLISHED, *MADE]


def prepared(base: Base, folder: Path) -> Path:
    tree = folder / "tree"
    base.make(tree)
    return tree


def found(tree: Path, base: Base) -> list[Finding]:
    return check(tree, load_round(base.round))


def places(findings: list[Finding]) -> Counter[tuple[str, str]]:
    return Counter((finding.rule, finding.path) for finding in findings)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Base], Counter[tuple[str, str]]]:
    """The findings of a tree before its mutation."""
    return functools.cache(lambda base: places(found(prepared(base, tmp_path_factory.mktemp("before")), base)))


def test_every_rule_has_a_mutation():
    names = [module.name for module in pkgutil.iter_modules(harness_llm.checker.__path__)]
    modules = [importlib.import_module(f"harness_llm.checker.{name}") for name in names]
    rules = {thing.id for module in modules for thing in vars(module).values() if isinstance(thing, Rule)}
    assert rules == {mutation.rule for mutation in MUTATIONS if mutation.rule}


@pytest.mark.parametrize("base", [V60, V51])
def test_published_tree_with_documents_has_no_error(before, base):
    assert {rule for rule, _ in before(base)} <= {"placeholder"}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.rule or 'allowed'} {m.place}")
def test_mutation_adds_its_finding_and_no_other(tmp_path, before, mutation):
    tree = prepared(mutation.base, tmp_path)
    mutation.breaks(tree / mutation.place)
    findings = found(tree, mutation.base)
    assert places(findings) - before(mutation.base) == mutation.adds
    own = [finding for finding in findings if finding.rule == mutation.rule]
    if mutation.severity:
        assert {finding.severity for finding in own} == {mutation.severity}
    if mutation.codes:
        authorities = {finding.authority for finding in findings if (finding.rule, finding.path) in mutation.adds}
        assert (Authority.CHECKER in authorities) == (mutation.codes != OK)


@pytest.mark.inference
@pytest.mark.parametrize("base", [V60, V51, NET])
def test_official_checker_accepts_the_trees_before_mutation(tmp_path, base):
    verdicts = run_official(prepared(base, tmp_path), base.round, Path(os.environ[CHECKOUT_VARIABLE]))
    assert tuple(verdict.exit_code for verdict in verdicts) == OK


@pytest.mark.inference
@pytest.mark.parametrize("mutation", [m for m in PUBLISHED if m.codes], ids=lambda m: f"{m.rule} {m.place}")
def test_official_checker_gives_the_listed_verdict_of_a_mutation(tmp_path, mutation):
    tree = prepared(mutation.base, tmp_path)
    mutation.breaks(tree / mutation.place)
    verdicts = run_official(tree, mutation.base.round, Path(os.environ[CHECKOUT_VARIABLE]))
    assert tuple(verdict.exit_code for verdict in verdicts) == mutation.codes


@pytest.mark.inference
@pytest.mark.parametrize("mutation", [m for m in PUBLISHED if m.rule == "power"], ids=lambda m: m.place)
def test_official_checker_names_the_same_files_of_a_power_measurement(tmp_path, mutation):
    tree = prepared(mutation.base, tmp_path)
    checkout = Path(os.environ[CHECKOUT_VARIABLE])

    def mismatches() -> list[str]:
        verdict, _ = run_official(tree, mutation.base.round, checkout)
        return [error for error in verdict.errors if "file list mismatch" in error]

    assert mismatches() == []
    mutation.breaks(tree / mutation.place)
    (mismatch,) = mismatches()
    assert repr(Path(mutation.place).name) in mismatch
