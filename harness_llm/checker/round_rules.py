"""Rule on the round of a tree: logs, profiles and folder name belong to one round."""

import os
from collections.abc import Iterator
from pathlib import Path

from harness_llm.checker.findings import Rule, Violation, forbidden, rejected, rule
from harness_llm.checker.tree_round import TreeRound, words
from harness_llm.config.commands import typed

_NAMED = forbidden("inference_policies/inference_rules.adoc:85")
"""Seeds are of one round; the official checker reads neither the folder name nor the profile."""


@rule("round", rejected("performance_check.py, seeds_check"))
def one_round(subject: TreeRound) -> Iterator[Violation]:
    """Parts of the tree belong to another round."""
    if subject.others:
        logs = [log for part in subject.others for log in part.logs]
        where = Path(os.path.commonpath(logs)) if logs else subject.tree
        expected = f"{subject.name}: {words(subject.own)}" if subject.own else subject.name
        other = subject.others[0].rounds[-1]
        correction = f"run again with the LoadGen of {subject.name}" if logs else typed(round=subject.name)
        hint = f"if the tree is of {other}: {typed(round=other)}; else {correction}"
        yield Violation(where, expected, words(subject.others), hint, None if logs else _NAMED, logs)


ROUND: tuple[Rule[TreeRound], ...] = (one_round,)
