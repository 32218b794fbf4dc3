"""ROUGE, bit-identical to rouge_score's RougeScorer(use_stemmer=True) and faster.

Each distinct word is stemmed once. Longest common subsequences are computed on bit vectors (Hyyrö, "Bit-parallel
LCS-length computation revisited", 2004).
"""

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cached_property
from itertools import chain, pairwise, repeat
from typing import TypeVar

from nltk.stem.porter import PorterStemmer
from rapidfuzz.distance import LCSseq
from rouge_score.scoring import fmeasure
from rouge_score.tokenize import tokenize

METRICS = ("ROUGE1", "ROUGE2", "ROUGEL", "ROUGELSUM")

_WORD = re.compile("[a-z0-9]+")
_DROPPED = -1
_Item = TypeVar("_Item", bound=Hashable)


class _Vocabulary(dict[str, int]):
    """Ids of words; two words have the same id if rouge_score maps them to the same token."""

    def __init__(self) -> None:
        super().__init__()
        self._stemmer = PorterStemmer()
        self._ids: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        stems = tokenize(word, self._stemmer)
        self[word] = self._ids.setdefault(stems[0], len(self._ids)) if stems else _DROPPED
        return self[word]


_VOCABULARY = _Vocabulary()


class _Text:
    """Tokens of a text."""

    def __init__(self, text: str) -> None:
        self.sentences = [_tokens(line) for line in text.split("\n") if line]

    @cached_property
    def tokens(self) -> list[int]:
        """Ids of all words."""
        return list(chain.from_iterable(self.sentences))

    @cached_property
    def counts(self) -> Counter[int]:
        """Number of occurrences of each word."""
        return Counter(self.tokens)

    @cached_property
    def positions(self) -> list[dict[int, int]]:
        """Positions of each word, per sentence, as a bit mask: bit j is position j."""
        return [_positions(sentence) for sentence in self.sentences]


def _positions(sentence: list[int]) -> dict[int, int]:
    positions: dict[int, int] = {}
    for position, token in enumerate(sentence):
        positions[token] = positions.get(token, 0) | 1 << position
    return positions


def _tokens(line: str) -> list[int]:
    ids = map(_VOCABULARY.__getitem__, _WORD.findall(line.lower()))
    return [i for i in ids if i != _DROPPED]


def score(target: str, prediction: str, metrics: Sequence[str]) -> list[float]:
    """F-measures (0 to 1) of `prediction` against `target`, in the order of `metrics`.

    Sentences are separated by newlines, which only ROUGELSUM uses.
    """
    texts = _Text(target), _Text(prediction)
    return [_SCORERS[metric](*texts) for metric in metrics]


def _rouge1(target: _Text, prediction: _Text) -> float:
    return _f(_overlap(target.counts, prediction.counts), len(target.tokens), len(prediction.tokens))


def _rouge2(target: _Text, prediction: _Text) -> float:
    pairs = Counter(pairwise(target.tokens)), Counter(pairwise(prediction.tokens))
    return _f(_overlap(*pairs), len(target.tokens) - 1, len(prediction.tokens) - 1)


def _rouge_l(target: _Text, prediction: _Text) -> float:
    common = LCSseq.similarity(target.tokens, prediction.tokens)
    return _f(common, len(target.tokens), len(prediction.tokens))


def _rouge_l_sum(target: _Text, prediction: _Text) -> float:
    """Union of the common subsequences of each target sentence; counts of a word are clipped to both texts."""
    left = {token: min(n, prediction.counts[token]) for token, n in target.counts.items()}
    hits = 0
    for sentence in target.sentences:
        found = map(_common_positions, repeat(sentence), prediction.sentences, prediction.positions)
        for position in sorted(set(chain.from_iterable(found))):
            token = sentence[position]
            if left[token]:
                left[token] -= 1
                hits += 1
    return _f(hits, len(target.tokens), len(prediction.tokens))


_SCORERS = dict(zip(METRICS, (_rouge1, _rouge2, _rouge_l, _rouge_l_sum), strict=True))


def _f(common: int, target: int, prediction: int) -> float:
    value: float = fmeasure(common / max(prediction, 1), common / max(target, 1))
    return value


def _overlap(a: Counter[_Item], b: Counter[_Item]) -> int:
    return sum(min(n, b[item]) for item, n in a.items() if item in b)


def _common_positions(a: list[int], b: list[int], in_b: dict[int, int]) -> list[int]:
    """Positions in `a` of the longest common subsequence that rouge_score's backtracking selects.

    Backtracking skips words of `a` that are not in `b`, so they are removed first.
    """
    shared = [i for i, token in enumerate(a) if token in in_b]
    rows = _rows([in_b[a[i]] for i in shared], len(b))
    positions = []
    i, j = len(shared), len(b)
    while i and j:
        seen = (1 << j) - 1
        if a[shared[i - 1]] == b[j - 1]:
            i, j = i - 1, j - 1
            positions.append(shared[i])
        elif (rows[i] & seen).bit_count() > (rows[i - 1] & seen).bit_count():
            j -= 1
        else:
            i -= 1
    return positions


def _rows(matches: list[int], length: int) -> list[int]:
    """Table of LCS lengths: bit j of row i is set if b[j] extends the LCS of a[:i] and b[:j].

    Args:
        matches: for each word of `a`, its positions in `b` as a bit mask.
        length: number of words of `b`.
    """
    full = (1 << length) - 1
    vector, rows = full, [0]
    for match in matches:
        hits = vector & match
        vector = ((vector + hits) | (vector - hits)) & full
        rows.append(vector ^ full)
    return rows
