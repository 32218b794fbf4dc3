"""The commands that read finished runs: runs, compare, diagnose, report, bundle."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness_llm.analysis import compare_report, run_table
from harness_llm.analysis.bundle import ask_doctor, make_bundle, open_run_folder
from harness_llm.analysis.compare import compare as compare_runs
from harness_llm.analysis.diagnosis import diagnosis_report
from harness_llm.analysis.diagnosis.diagnosis import diagnose as diagnose_run
from harness_llm.analysis.diagnosis.run_data import read_run
from harness_llm.analysis.repeats import read_runs, split_paths
from harness_llm.analysis.report.html_page import write_page
from harness_llm.analysis.report.report_page import report_page
from harness_llm.analysis.run_row import run_row
from harness_llm.analysis.run_selection import choose
from harness_llm.analysis.verdict import gate, parse_share, verdicts
from harness_llm.paths import Workspace
from harness_llm.runs.record import find_runs


def runs(where: Sequence[str], order: str, last: int | None, *, as_csv: bool, as_json: bool) -> None:
    """Print a row per run.

    Raises:
        ConfigError: a condition or the order is wrong.
    """
    rows = choose([run_row(run) for run in find_runs(Workspace().logs)], where, order, last)
    if as_csv or as_json:
        sys.stdout.write(run_table.as_csv(rows) if as_csv else run_table.as_json(rows))
    elif rows:
        run_table.show(rows, Console())
    else:
        sys.stderr.write(f"no runs{' that meet the conditions' if where else ''} below {Workspace().logs}\n")


def compare(runs_a: str, runs_b: str, *, fail_if_slower: str, as_json: bool) -> int:
    """Print two sides with one or more runs each; returns the exit code of --fail-if-slower, else 0."""
    share = parse_share(fail_if_slower) if fail_if_slower else None
    workspace = Workspace()
    paths = [[workspace.run_folder(path) for path in split_paths(text)] for text in (runs_a, runs_b)]
    sides = [read_runs(own) for own in paths]
    found = compare_runs(*sides)
    if as_json:
        sys.stdout.write(json.dumps(compare_report.as_json(found), indent=2) + "\n")
    else:
        console = Console()
        for name, own, runs in zip("AB", paths, sides, strict=True):
            alone = [scenario for scenario in runs if scenario not in found]
            text = f"{name}: {', '.join(map(str, own))}" + (f"; only {name} has {', '.join(alone)}" if alone else "")
            console.print(text, soft_wrap=True, highlight=False, markup=False)
        compare_report.show(found, console)
    if share is None:
        return 0
    code, lines = gate({scenario: verdicts(one) for scenario, one in found.items()}, share)
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    return code


def diagnose(folder: Path, *, as_json: bool) -> None:
    """Print the causes of a run's state and speed.

    Raises:
        ConfigError: the folder is no run directory, or the run has no record.
    """
    diagnosis = diagnose_run(read_run(Workspace().run_folder(folder)))
    text = json.dumps(diagnosis_report.as_json(diagnosis), indent=2) if as_json else diagnosis_report.render(diagnosis)
    sys.stdout.write(f"{text}\n")


def report(paths: Sequence[Path], output: Path | None, round_name: str) -> None:
    """Write the HTML report of `paths`, and print its path; `round_name` is the round of a submission tree.

    Raises:
        ConfigError: a path cannot be reported.
    """
    workspace = Workspace()
    page = report_page([workspace.run_folder(path) for path in paths], workspace, round_name)
    if page.notice:
        sys.stderr.write(f"{page.notice}\n")
    sys.stdout.write(f"{write_page(output or workspace.build / 'reports' / f'{page.name}.html', page.html)}\n")


def bundle(folder: Path, output: Path | None) -> None:
    """Write the redacted bundle of a run, and list its files.

    Raises:
        ConfigError: the folder is no run directory.
    """
    workspace = Workspace()
    run = open_run_folder(workspace.run_folder(folder))
    made = make_bundle(run, ask_doctor(run), workspace, output)
    for name, size in made.files.items():
        sys.stderr.write(f"{size:>9,} bytes  {name}\n")
    counts = ", ".join(f"{count} {kind}" for kind, count in made.redacted.items()) or "none"
    sys.stderr.write(f"redacted: {counts}\n")
    sys.stderr.write("The patterns do not find every private text, and the system name stays.\n")
    sys.stderr.write(f"Look at the files before you publish them: tar -xzf {shlex.quote(str(made.path))}\n")
    sys.stdout.write(f"{made.path}\n")
