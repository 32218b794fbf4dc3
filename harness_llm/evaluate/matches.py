"""Match metrics of one answer, 0 to 100; they reproduce the reference scripts, including their quirks."""

import re

_UUID = re.compile(r"\w{8}-\w{4}-\w{4}-\w{4}-\w{12}")
_SPACE = re.compile(r"\s+")
_NUMBER = re.compile(r"-?[\d,]*\.?\d+")


def niah_em(target: str, prediction: str) -> float:
    """Share of found needles, by language/llama3.1-405b/evaluate-accuracy.py.

    The script pairs UUIDs of answer and target and counts shared characters, so that a wrong UUID scores above 0 and
    an additional UUID lowers the score.
    """
    found, wanted = (_UUID.findall(text) for text in (prediction, target))
    if not found:
        return 0.0
    shares = [_shared(own, other) for own, other in zip(found, wanted, strict=False)]
    return round(sum(shares) / len(found) * 100, 2)


def _shared(own: str, other: str) -> float:
    return sum(character.lower() in own.lower() for character in other) / len(other)


def qa_em(target: str, prediction: str) -> float:
    """Correctness of an answer to a question, by language/llama3.1-405b/evaluate-accuracy.py.

    The text after the last "Answer: " must be part of the target, or contain one of its `|`-separated answers.
    """
    answer = prediction.rpartition("Answer: ")[2]
    normal = _normal(answer)
    return _percent(right=answer in target or any(_normal(entry) in normal for entry in target.split("|")))


def _normal(text: str) -> str:
    return _SPACE.sub("", text).lower()


def gsm8k(target: str, prediction: str) -> float:
    """Correctness of the resulting number, by language/mixtral-8x7b/evaluate-accuracy.py.

    The number is the first one after the last "The answer is", else the last number of the text. Text after the next
    "\\nQ:" is ignored.
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
    """Whether the texts are equal except for leading and trailing whitespace."""
    return _percent(right=target.strip() == prediction.strip())


def _percent(*, right: bool) -> float:
    return 100.0 if right else 0.0
