"""Programs of MBXP with their tests, assembled as in the reference (mixtral-8x7b/evaluate_mbxp.py).

The reference runs them with mxeval (execution.py at commit e09974f).
"""

import json
from typing import Literal, NamedTuple, get_args

Language = Literal["cpp", "javascript", "php", "python", "ruby", "typescript"]
"""Programming languages of MBXP that the reference scores."""
LANGUAGES: tuple[Language, ...] = get_args(Language)
_FENCE = "```"


class Program(NamedTuple):
    """A program; it passes if it exits with 0."""

    language: Language
    code: str


def assemble(target: str, answer: str) -> Program | None:
    """Combine the program of an answer with its test; None for a language that the reference does not score.

    Args:
        target: JSON with `lang`, `entry_point` and `test` of the sample.
        answer: text of the model, which repeats the prompt; the program ends where its code block ends.
    """
    sample = json.loads(target)
    language, test = sample["lang"], sample["test"]
    if language not in LANGUAGES:
        return None
    solution = answer.partition(_FENCE)[0]
    if language == "python":
        return Program(language, f"{_plain(solution.lstrip())}\n{test}\ncheck({sample['entry_point']})")
    return Program(language, _plain(solution) + test)


def _plain(solution: str) -> str:
    return solution.replace("\\_", "_")  # Mixtral escapes underscores


_RIGHT: dict[Language, str] = {
    "cpp": """#include <bits/stdc++.h>
using namespace std;
int twice(int x) { return 2 * x; }
int main() { if (twice(4) != 8) { throw runtime_error("wrong"); } return 0; }
""",
    "javascript": """const _ = require("lodash")
function twice(x) { return 2 * x }
if (!_.isEqual(twice(4), 8)) { throw 'wrong' }
""",
    "php": """<?php
function twice($x) { return 2 * $x; }
if (twice(4) != 8) { throw new Exception("wrong"); }
""",
    "python": """def twice(x):
    return 2 * x
def check(candidate):
    assert candidate(4) == 8
check(twice)
""",
    "ruby": """def twice(x)
  2 * x
end
raise StandardError, "wrong" if twice(4) != 8
""",
    "typescript": """import * as assert from 'assert'
const twice = function (x: number) : number { return 2 * x }
assert.deepEqual(twice(4), 8)
""",
}


def canaries(language: Language) -> tuple[Program, Program]:
    """A program that passes if the language is installed completely, and a program that always fails."""
    right = _RIGHT[language]
    return Program(language, right), Program(language, right.replace("2 *", "3 *"))
