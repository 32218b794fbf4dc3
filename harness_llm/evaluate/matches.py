"""Right or wrong: what the reference makes of one answer, 0 to 100, its quirks included."""

import re

_UUID = re.compile(r"\w{8}-\w{4}-\w{4}-\w{4}-\w{12}")
_SPACE = re.compile(r"\s+")
_NUMBER = re.compile(r"-?[\d,]*\.?\d+")


def niah_em(target: str, prediction: str) -> float:
    """Needles found, as language/llama3.1-405b/evaluate-accuracy.py counts them.

    It takes UUIDs of answer and target in pairs and looks which characters of the one occur in the other, so that a
    wrong UUID earns something, and one too many costs something.
    """
    found, wanted = (_UUID.findall(text) for text in (prediction, target))
    if not found:
        return 0.0
    shares = [_shared(own, other) for own, other in zip(found, wanted, strict=False)]
    return round(sum(shares) / len(found) * 100, 2)


def _shared(own: str, other: str) -> float:
    return sum(character.lower() in own.lower() for character in other) / len(other)


def qa_em(target: str, prediction: str) -> float:
    """Questions answered, as language/llama3.1-405b/evaluate-accuracy.py has it.

    What follows the last "Answer: " must be a part of the target, or hold one of the target's `|`-separated answers.
    """
    answer = prediction.rpartition("Answer: ")[2]
    normal = _normal(answer)
    return _percent(right=answer in target or any(_normal(entry) in normal for entry in target.split("|")))


def _normal(text: str) -> str:
    return _SPACE.sub("", text).lower()


def gsm8k(target: str, prediction: str) -> float:
    """Numbers worked out, as language/mixtral-8x7b/evaluate-accuracy.py has it.

    The number is the first after the last "The answer is", or else the last of all; a question that the model goes on
    to ask itself does not count.
    """
    text = prediction.split("\nQ:", maxsplit=1)[0]
    _, delimiter, conclusion = text.rpartition("The answer is")
    numbers = (_NUMBER.findall(conclusion) if delimiter else []) or _NUMBER.findall(text)[-1:]
    return _percent(right=bool(numbers) and float(numbers[0].replace(",", "")) == _float(target))


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def exact(target: str, prediction: str) -> float:
    """The same text but for white space around it."""
    return _percent(right=target.strip() == prediction.strip())


def _percent(*, right: bool) -> float:
    return 100.0 if right else 0.0
