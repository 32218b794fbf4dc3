"""The demo's corpus: seeded English instructions over a small vocabulary, each with one exact answer.

The hash of a prompt determines its split, so the splits are disjoint.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

_TEXT = (
    "amber ant apple bag bean bear bell black blue book box bread brown brush cake cat coin corn cow cup desk dog door "
    "duck egg fig flag fox frog goat gold green grey hat hen jam key lamp lemon lion milk mouse nut onion pea pen pig "
    "pink plum purple red rice rope salt seal silver table tan teal tiger violet white wolf yellow"
)
WORDS = _TEXT.split()
NUMBERS = range(1, 31)
ORDINALS = ("first", "second", "third", "fourth", "fifth")

SEPARATOR = " answer:"


class Split(StrEnum):
    """Use of a prompt."""

    EVALUATION = "evaluation"
    CALIBRATION = "calibration"
    TRAINING = "training"


@dataclass(frozen=True)
class Sample:
    """One instruction; `prompt` ends with SEPARATOR."""

    kind: str
    prompt: str
    answer: str


def samples(split: Split, count: int, seed: int) -> list[Sample]:
    """Return `count` samples of `split` with distinct prompts."""
    found: dict[str, Sample] = {}
    for sample in _stream(seed):
        if split_of(sample.prompt) is split:
            found.setdefault(sample.prompt, sample)
        if len(found) == count:
            break
    return list(found.values())


def split_of(prompt: str) -> Split:
    """Return the split of `prompt`: evaluation 3/8, calibration 1/8, training 1/2."""
    bucket = hashlib.sha256(prompt.encode()).digest()[0] % 8
    if bucket < 3:  # noqa: PLR2004
        return Split.EVALUATION
    return Split.CALIBRATION if bucket == 3 else Split.TRAINING  # noqa: PLR2004


def _stream(seed: int) -> Iterator[Sample]:
    rng = Random(seed)  # noqa: S311 - not for secrets
    kinds = sorted(KINDS)
    while True:
        kind = rng.choice(kinds)
        instruction, answer = KINDS[kind](rng)
        yield Sample(kind, instruction + SEPARATOR, answer)


def _pick(rng: Random, fewest: int, most: int) -> list[str]:
    return rng.sample(WORDS, rng.randint(fewest, most))


def _listed(words: list[str]) -> str:
    return " ".join(words)


def _repeat(rng: Random) -> tuple[str, str]:
    words = _pick(rng, 3, 12)
    return f"{rng.choice(('repeat', 'say again'))}: {_listed(words)}", _listed(words)


def _reverse(rng: Random) -> tuple[str, str]:
    words = _pick(rng, 3, 6)
    return f"{rng.choice(('reverse', 'say backwards'))}: {_listed(words)}", _listed(words[::-1])


def _first(rng: Random) -> tuple[str, str]:
    words = _pick(rng, 3, 6)
    return f"what is the first word of: {_listed(words)}", f"the first word is {words[0]}."


def _last(rng: Random) -> tuple[str, str]:
    words = _pick(rng, 3, 6)
    return f"what is the last word of: {_listed(words)}", f"the last word is {words[-1]}."


def _position(rng: Random) -> tuple[str, str]:
    words = _pick(rng, 5, 8)
    place = rng.randrange(len(ORDINALS))
    return (
        f"what is the {ORDINALS[place]} word of: {_listed(words)}",
        f"the {ORDINALS[place]} word is {words[place]}.",
    )


def _ends(rng: Random) -> tuple[str, str]:
    words = _pick(rng, 4, 8)
    return f"give the first and the last word of: {_listed(words)}", f"first {words[0]}, last {words[-1]}."


def _count(rng: Random) -> tuple[str, str]:
    words = _pick(rng, 2, 8)
    return f"how many words are there: {_listed(words)}", f"there are {len(words)} words."


def _copies(rng: Random) -> tuple[str, str]:
    words, times = _pick(rng, 2, 3), rng.randint(2, 6)
    return f"say {times} times: {_listed(words)}", ", ".join([_listed(words)] * times)


def _twice(rng: Random) -> tuple[str, str]:
    words = _pick(rng, 3, 6)
    return f"say each word twice: {_listed(words)}", _listed([word for word in words for _ in range(2)])


def _numbered(rng: Random) -> tuple[str, str]:
    words = _pick(rng, 3, 6)
    return f"number the list: {_listed(words)}", _listed([f"{i} {word}" for i, word in enumerate(words, 1)])


def _joined(rng: Random) -> tuple[str, str]:
    words = _pick(rng, 3, 6)
    return f"join with and: {_listed(words)}", " and ".join(words)


def _swapped(rng: Random) -> tuple[str, str]:
    words = _pick(rng, 3, 6)
    return f"swap the first and the last word: {_listed(words)}", _listed([words[-1], *words[1:-1], words[0]])


def _until(rng: Random) -> tuple[str, str]:
    words = _pick(rng, 4, 7)
    place = rng.randrange(2, len(words))
    return f"stop at {words[place]}: {_listed(words)}", _listed(words[: place + 1])


def _added(rng: Random) -> tuple[str, str]:
    new, *words = _pick(rng, 4, 7)
    return f"add {new} at the end: {_listed(words)}", _listed([*words, new])


def _fronted(rng: Random) -> tuple[str, str]:
    new, *words = _pick(rng, 4, 7)
    return f"put {new} in front: {_listed(words)}", _listed([new, *words])


def _replaced(rng: Random) -> tuple[str, str]:
    new, *words = _pick(rng, 4, 7)
    old = rng.choice(words)
    return f"replace {old} by {new}: {_listed(words)}", _listed([new if word == old else word for word in words])


def _without(rng: Random) -> tuple[str, str]:
    words = _pick(rng, 4, 7)
    gone = rng.choice(words)
    return f"leave out {gone}: {_listed(words)}", _listed([word for word in words if word != gone])


def _sorted(rng: Random) -> tuple[str, str]:
    numbers = rng.sample(NUMBERS, rng.randint(3, 6))
    return f"sort the numbers: {_listed(list(map(str, numbers)))}", _listed(list(map(str, sorted(numbers))))


def _largest(rng: Random) -> tuple[str, str]:
    numbers = rng.sample(NUMBERS, rng.randint(3, 6))
    return (
        f"which number is the largest: {_listed(list(map(str, numbers)))}",
        f"the largest is {max(numbers)}.",
    )


def _longest(rng: Random) -> tuple[str, str]:
    length = rng.randint(4, 6)
    longest = rng.choice([word for word in WORDS if len(word) == length])
    words = [longest, *rng.sample([word for word in WORDS if len(word) < length], rng.randint(2, 4))]
    rng.shuffle(words)
    return f"which word is the longest: {_listed(words)}", f"the longest is {longest}."


KINDS: dict[str, Callable[[Random], tuple[str, str]]] = {
    "added": _added,
    "copies": _copies,
    "count": _count,
    "ends": _ends,
    "first": _first,
    "fronted": _fronted,
    "joined": _joined,
    "largest": _largest,
    "last": _last,
    "longest": _longest,
    "numbered": _numbered,
    "position": _position,
    "repeat": _repeat,
    "replaced": _replaced,
    "reverse": _reverse,
    "sorted": _sorted,
    "swapped": _swapped,
    "twice": _twice,
    "until": _until,
    "without": _without,
}
