"""The official checker's summary and final report are written beside the archive and printed."""

import json
import os
import shutil
from pathlib import Path

import pytest
from golden import GOLDEN

from harness_llm.checker import final_report
from harness_llm.checker.final_report import keep_report, render_summary
from harness_llm.checker.official import OfficialVerdict, run_official
from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE

SUMMARY = (
    "Organization,Division,Platform,Model,Scenario,Result,Units,Accuracy\n"
    'Acme,closed,box,llama2-70b-99.9,Offline,12345.6,Tokens/s,"{""ROUGE1"": 44.4}"\n'
)


def verdict(summary: str, *arguments: str) -> OfficialVerdict:
    return OfficialVerdict(arguments, 0, [], [], summary)


def test_results_counted_by_the_official_checker_are_shown() -> None:
    assert render_summary(SUMMARY).splitlines() == [
        "official summary: 1 results",
        '  closed  box  llama2-70b-99.9  Offline  12345.6  Tokens/s  {"ROUGE1": 44.4}',
    ]


def test_summary_of_the_last_check_is_kept_beside_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(final_report, "PYTHON", Path("/no/such/python"))
    tree, verdicts = tmp_path / "tree", [verdict("of exceptions", "--submission-exceptions"), verdict(SUMMARY)]
    *_, file, last = keep_report(tree, verdicts, "v6.1", tmp_path)
    assert file == f"  {tmp_path}/tree_summary.csv"
    assert (tmp_path / "tree_summary.csv").read_text() == SUMMARY
    assert last.startswith("no final report: missing packages of the official scripts; ")
    assert last.endswith("; hint: make graders")
    assert keep_report(tree, [], "v6.1", None) == []
    assert not list(tmp_path.iterdir())


@pytest.mark.inference
@pytest.mark.graders
def test_official_script_writes_the_report_of_published_results(tmp_path: Path) -> None:
    tree, inference = tmp_path / "tree", Path(os.environ[CHECKOUT_VARIABLE])
    shutil.copytree(GOLDEN / "v6.0", tree)
    lines = keep_report(tree, run_official(tree, "v6.0", inference), "v6.0", inference)
    names = {"tree_summary.csv", "tree_summary.xlsx", "tree_summary_results.json"}
    assert {file.name for file in tmp_path.iterdir()} == {"tree", *names}
    assert {Path(line.strip()).name for line in lines[1:]} == names
    results = json.loads((tmp_path / "tree_summary_results.json").read_text())
    assert results
    assert lines[0].startswith("official summary: ")
    assert {result["Submitter"] for result in results} <= {home.name for home in tree.glob("*/*")}
