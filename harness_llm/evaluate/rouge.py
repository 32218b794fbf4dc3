"""ROUGE as rouge_score's RougeScorer(use_stemmer=True) has it, to the last bit, but fast.

Words become ids once for all texts, and common subsequences are found on bit vectors (Hyyrö, "Bit-parallel
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
    """Ids of words: equal where rouge_score's tokens are."""

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
    """A text as ROUGE sees it."""

    def __init__(self, text: str) -> None:
        self.sentences = [_tokens(line) for line in text.split("\n") if line]

    @cached_property
    def tokens(self) -> list[int]:
        """Ids of all words."""
        return list(chain.from_iterable(self.sentences))

    @cached_property
    def counts(self) -> Counter[int]:
        """How often each word occurs."""
        return Counter(self.tokens)

    @cached_property
    def places(self) -> list[dict[int, int]]:
        """Per sentence, where each word of it stands: bit j is the place j."""
        return [_places(sentence) for sentence in self.sentences]


def _places(sentence: list[int]) -> dict[int, int]:
    places: dict[int, int] = {}
    for place, token in enumerate(sentence):
        places[token] = places.get(token, 0) | 1 << place
    return places


def _tokens(line: str) -> list[int]:
    ids = map(_VOCABULARY.__getitem__, _WORD.findall(line.lower()))
    return [i for i in ids if i != _DROPPED]


def score(target: str, prediction: str, metrics: Sequence[str]) -> list[float]:
    """F-measures (0 to 1) of `prediction` against `target`, in the order of `metrics`.

    Sentences stand on lines of their own, which only ROUGELSUM minds.
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
    """Union of common subsequences per target sentence; a word counts as often as both texts have it."""
    left = {token: min(n, prediction.counts[token]) for token, n in target.counts.items()}
    hits = 0
    for sentence in target.sentences:
        found = map(_common_positions, repeat(sentence), prediction.sentences, prediction.places)
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


def _common_positions(a: list[int], b: list[int], places: dict[int, int]) -> list[int]:
    """Positions in `a` of that longest common subsequence which rouge_score's way back picks.

    It steps over a word of `a` that `b` lacks wherever it meets one, so that these can be left out beforehand.
    """
    shared = [i for i, token in enumerate(a) if token in places]
    rows = _rows([places[a[i]] for i in shared], len(b))
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
    """The table of common lengths: bit j of row i is set where b[j] lengthens what a[:i] and b[:j] share.

    `matches` has the places in `b`, of `length` words, of each word of `a`.
    """
    full = (1 << length) - 1
    vector, rows = full, [0]
    for match in matches:
        hits = vector & match
        vector = ((vector + hits) | (vector - hits)) & full
        rows.append(vector ^ full)
    return rows
