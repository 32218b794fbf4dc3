import json

from harness_llm.checker.findings import Authority, Finding, Severity
from harness_llm.checker.findings_report import as_json, render, render_official
from harness_llm.checker.official import OfficialVerdict
from harness_llm.checker.tree_round import TreeRound

SEEDS = Finding(
    rule="seeds",
    authority=Authority.CHECKER,
    citation="performance_check.py, seeds_check",
    severity=Severity.ERROR,
    what="A seed is wrong",
    path="open/a.txt",
    expected="1",
    found="2",
    hint="run again",
)
NAME = Finding("file-name", Authority.ADVICE, "checks.sh", Severity.WARNING, "A dot", "open/.b", "a name", "", "")
SHORT = Finding(
    "min-duration", Authority.CHECKER, "x.py", Severity.SCALE, "Short", "open/c.txt", "600 s", "5 s", "", scale=True
)
VISION = Finding("scope", Authority.SCOPE, "here", Severity.NOT_JUDGED, "Vision", "open/d", "", "resnet", "")


def test_errors_are_listed_first_and_each_rule_once():
    text = render([VISION, SHORT, NAME, SEEDS, Finding(**{**vars(SEEDS), "path": "open/b.txt"})])
    assert (
        text
        == """\
error seeds: A seed is wrong
  official checker: performance_check.py, seeds_check
  where: open/a.txt
    expected: 1
    found: 2
  where: open/b.txt
    expected: 1
    found: 2
  hint: run again

warning file-name: A dot
  advice: checks.sh
  where: open/.b
    expected: a name

scale min-duration: Short
  official checker: x.py
  where: open/c.txt
    expected: 600 s
    found: 5 s

not judged scope: Vision
  scope: here
  where: open/d
    found: resnet

2 errors, 1 warning, 1 because of small runs, 1 result not judged
"""
    )


def test_many_places_are_counted():
    text = render([Finding(**{**vars(NAME), "path": f"open/{i}"}) for i in range(7)])
    assert text.count("where:") == 5
    assert "  and 2 more\n" in text
    assert text.endswith("0 errors, 7 warnings\n")


def test_tree_without_findings_is_one_line():
    assert render([]) == "0 errors, 0 warnings\n"


def test_both_official_verdicts_are_shown():
    verdicts = [OfficialVerdict((), 0, [], ["SUMMARY: OK"]), OfficialVerdict(("--x",), 1, ["ERROR a"], ["b"])]
    assert render_official(verdicts) == (
        "official checker: OK (exit 0)\nofficial checker --x: rejects the tree (exit 1)\n  ERROR a\n"
    )


def test_json_has_every_field(tmp_path):
    chosen = TreeRound(tmp_path, "v6.0", given=True, evidence=())
    document = json.loads(json.dumps(as_json(chosen, [SEEDS], [], [OfficialVerdict((), 0, [], [])])))
    assert document["findings"] == [
        {
            "rule": "seeds",
            "authority": "official checker",
            "citation": "performance_check.py, seeds_check",
            "severity": "error",
            "what": "A seed is wrong",
            "path": "open/a.txt",
            "expected": "1",
            "found": "2",
            "hint": "run again",
            "scale": False,
            "logs": [],
        }
    ]
    assert (document["round"], document["round_source"], document["results"]) == ("v6.0", "--round", [])
    assert document["official"] == [{"arguments": [], "exit_code": 0, "errors": [], "tail": [], "summary": ""}]
