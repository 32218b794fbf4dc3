import json

from harness_llm.check.findings import Finding, Severity
from harness_llm.check.official import OfficialVerdict
from harness_llm.check.report import as_json, render, render_official

SEEDS = Finding(
    rule="seeds",
    clause="performance_check.py",
    severity=Severity.ERROR,
    what="A seed is wrong",
    path="open/a.txt",
    expected="1",
    found="2",
    hint="run again",
)
SUMMARY = Finding("summary", "structure.md", Severity.WARNING, "No summary", "open/b.txt", "a file", "", "")
SHORT = Finding("min-duration", "x.py", Severity.SCALE, "Short", "open/c.txt", "600 s", "5 s", "", scale=True)


def test_errors_come_first_and_each_rule_once():
    text = render([SHORT, SUMMARY, SEEDS, Finding(**{**vars(SEEDS), "path": "open/b.txt"})])
    assert (
        text
        == """\
error seeds: A seed is wrong
  clause: performance_check.py
  where: open/a.txt
    expected: 1
    found: 2
  where: open/b.txt
    expected: 1
    found: 2
  hint: run again

warning summary: No summary
  clause: structure.md
  where: open/b.txt
    expected: a file

scale min-duration: Short
  clause: x.py
  where: open/c.txt
    expected: 600 s
    found: 5 s

2 errors, 1 warning, 1 for the size of the runs
"""
    )


def test_many_places_are_counted():
    text = render([Finding(**{**vars(SUMMARY), "path": f"open/{i}"}) for i in range(7)])
    assert text.count("where:") == 5
    assert "  and 2 more\n" in text
    assert text.endswith("0 errors, 7 warnings\n")


def test_a_clean_tree_is_one_line():
    assert render([]) == "0 errors, 0 warnings\n"


def test_both_official_verdicts_are_shown():
    verdicts = [OfficialVerdict((), 0, [], ["SUMMARY: OK"]), OfficialVerdict(("--x",), 1, ["ERROR a"], ["b"])]
    assert render_official(verdicts) == (
        "official checker: OK (exit 0)\nofficial checker --x: refuses the tree (exit 1)\n  ERROR a\n"
    )


def test_json_holds_every_field():
    document = json.loads(json.dumps(as_json([SEEDS], [OfficialVerdict((), 0, [], [])])))
    assert document["findings"] == [
        {
            "rule": "seeds",
            "clause": "performance_check.py",
            "severity": "error",
            "what": "A seed is wrong",
            "path": "open/a.txt",
            "expected": "1",
            "found": "2",
            "hint": "run again",
            "scale": False,
        }
    ]
    assert document["official"] == [{"arguments": [], "exit_code": 0, "errors": [], "tail": []}]
