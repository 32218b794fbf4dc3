"""The round whose rules apply to a tree: given, or determined from layout, logs, profiles and folder name."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness_llm.checker.log_rounds import LogRounds, rounds_of_log
from harness_llm.checker.submission_tree import DIVISIONS, PERFORMANCE_LOG, json_or_none, require_tree
from harness_llm.config.commands import name_of, typed
from harness_llm.config.rules.rounds import load_round, no_earlier_rounds, round_names
from harness_llm.errors import ConfigError
from harness_llm.loadgen.logs import parse_detail
from harness_llm.submission.places import PROFILE


@dataclass(frozen=True)
class RoundEvidence:
    """A part of a tree that belongs to certain rounds.

    Attributes:
        what: the part, in words.
        rounds: the rounds; none for logs of unknown rounds.
        logs: the logs, if the part consists of logs.
    """

    what: str
    rounds: tuple[str, ...]
    logs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class TreeRound:
    """The round whose rules apply to a tree.

    Attributes:
        tree: the folder with the divisions.
        name: for example v6.1.
        given: whether the user gave the round.
        evidence: parts of the tree that must belong to the round.
    """

    tree: Path
    name: str
    given: bool
    evidence: tuple[RoundEvidence, ...]

    def __str__(self) -> str:
        return f"by the rules of round {self.name}: {self.source}"

    @property
    def source(self) -> str:
        """The origin of the round, in words."""
        return name_of("round") if self.given else words(self.own) or "the newest, because the tree has no readable log"

    @property
    def own(self) -> tuple[RoundEvidence, ...]:
        """Evidence of the round."""
        return tuple(part for part in self.evidence if self.name in part.rounds)

    @property
    def others(self) -> tuple[RoundEvidence, ...]:
        """Evidence of other rounds only."""
        return tuple(part for part in self.evidence if part.rounds and self.name not in part.rounds)


def words(parts: Sequence[RoundEvidence]) -> str:
    """The evidence in words."""
    return ", ".join(part.what for part in parts)


def choose_round(tree: Path, given: str = "") -> TreeRound:
    """The round `given`; else the newest one that fits the layout, then the logs, the profiles and the folder name.

    The layout comes first: logs of an earlier round in a newer layout are a fault of the logs.

    Args:
        tree: the folder with the divisions.
        given: for a given round, only the logs are evidence.

    Raises:
        ConfigError: `tree` is no submission tree, `given` is unknown, or the tree has logs, all of unknown rounds.
    """
    require_tree(tree)
    logs = tuple(_logs(tree))
    if given:
        return TreeRound(tree, load_round(given).round, given=True, evidence=logs)
    layout, named = tuple(_layout(tree)), (*_profiles(tree), *_folder_name(tree))
    names = round_names()
    for part in (*layout, *logs, *named):
        names = [name for name in names if name in part.rounds] or names
    if logs and not any(part.rounds for part in (*logs, *named)):
        raise ConfigError(
            "unknown round of the tree",
            where=str(tree),
            expected=f"seeds, LoadGen version or folder name of {', '.join(round_names())}",
            found=words(logs),
            hint=f"{no_earlier_rounds()}; for a tree of a later round: {typed(round=names[-1])}",
        )
    return TreeRound(tree, names[-1], given=False, evidence=(*layout, *logs, *named))


def _layout(tree: Path) -> Iterator[RoundEvidence]:
    """The rounds with the layout of the measurements; none if the tree has no measurements, or has them twice."""
    globs = {name: re.sub(r"\{\w+\}\*?", "*", load_round(name).layout.measurements_glob) for name in round_names()}
    used = {glob for glob in globs.values() for division in DIVISIONS if any(tree.glob(f"{division}/*/{glob}"))}
    if len(used) == 1:
        names = tuple(name for name, glob in globs.items() if glob in used)
        yield RoundEvidence(f"layout of {' and '.join(names)}", names)


def _logs(tree: Path) -> Iterator[RoundEvidence]:
    """The readable logs of performance runs, grouped by their rounds; the largest group first."""
    groups: dict[LogRounds, list[Path]] = defaultdict(list)
    for division in DIVISIONS:
        for log in sorted(tree.glob(f"{division}/*/results/*/*/*/{PERFORMANCE_LOG}")):
            try:
                groups[rounds_of_log(parse_detail(log))].append(log)
            except ConfigError:  # rules of the check report it
                continue
    for rounds, logs in sorted(groups.items(), key=lambda group: -len(group[1])):
        what = f"{rounds.what} in {len(logs)} performance log{'' if len(logs) == 1 else 's'}"
        yield RoundEvidence(what, rounds.names, tuple(logs))


def _profiles(tree: Path) -> Iterator[RoundEvidence]:
    """The rounds in the profiles of a tree that harness-llm made."""
    profiles = [json_or_none(file) or {} for file in sorted(tree.glob(f"*/*/{PROFILE}"))]
    for name in dict.fromkeys(str(profile["round"]) for profile in profiles if "round" in profile):
        yield RoundEvidence(f"{Path(PROFILE).name} of {name}", (name,))


def _folder_name(tree: Path) -> Iterator[RoundEvidence]:
    """The round in the name of the tree's folder: inference_results_v5.1, inference_results_6.1, v6.0."""
    folder = tree.resolve().name
    for name in round_names():
        if re.search(rf"(^|_)v?{re.escape(name.removeprefix('v'))}(?!\.?\d)", folder):
            yield RoundEvidence(f"folder name {folder}", (name,))
