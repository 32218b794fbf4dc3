"""The daily loop with the real engine: edit a target or a file, submit, look. Only what an edit concerns is run."""

import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from ended_submission import NAMES, SUBMIT, SYSTEM, digests
from terminal import MAIN, Ended, Terminal

from harness_llm.paths import CHECKOUT
from harness_llm.runs.record import Run, State, find_runs

pytestmark = [pytest.mark.engine(seconds=300), pytest.mark.processes, pytest.mark.slow]

TREE = "inference_results_6.1-smoke"
SERVER = "llama2-70b.Server.target_qps"
OFFLINE = "llama2-70b.Offline.target_qps"
LOW, HIGHER, FAR = 30, 40, 20_000
ALL = [(scenario, test) for scenario in ("Offline", "Server") for test in ("performance", "accuracy", "TEST06")]


@dataclass(frozen=True)
class Loop:
    """A workspace whose six runs are VALID with the Server target LOW."""

    terminal: Terminal

    @property
    def conf(self) -> Path:
        return self.terminal.workspace.user_confs / "user_cpu.conf"

    @property
    def tree(self) -> Path:
        return self.terminal.workspace.submission / TREE

    def edit(self, pattern: str, text: str) -> None:
        before = self.conf.read_text()
        after = re.sub(pattern, text, before)
        assert after != before
        self.conf.write_text(after)

    def set_target(self, value: int) -> None:
        self.edit(rf"(?m)^{re.escape(SERVER)} = .*$", f"{SERVER} = {value}")

    def submit(self, *words: str) -> tuple[Ended, list[Run]]:
        """The command's end, and the runs that it made."""
        before = {run.path for run in self.runs()}
        done = self.terminal.run(*SUBMIT, *words)
        return done, [run for run in self.runs() if run.path not in before]

    def runs(self) -> list[Run]:
        return find_runs(self.terminal.workspace.logs, SYSTEM)

    def packed_target(self) -> str:
        (conf,) = self.tree.glob(f"*/Acme/**/{SYSTEM}/demo/Server/user.conf")
        return next(line for line in conf.read_text().splitlines() if line.startswith(SERVER))


@pytest.fixture(scope="module")
def loop(terminal: Terminal) -> Iterator[Loop]:
    loop = Loop(terminal)
    loop.set_target(LOW)
    done = terminal.until_valid(lambda: loop.submit()[0])
    assert done.code == 0, done.err
    return loop


def server_performance(runs: list[Run]) -> list[State]:
    """The states of `runs`, all of which are performance runs of Server."""
    assert {(run.run_key.scenario, run.run_key.test) for run in runs} <= {("Server", "performance")}
    return [run.state for run in runs]


def test_edits_of_a_target_measure_what_they_concern(loop: Loop) -> None:
    low = loop.packed_target()
    loop.set_target(HIGHER)
    plan, made = loop.submit("--dry-run")
    assert made == []
    assert f"{SERVER}: {LOW} vs {HIGHER}" in plan.err
    assert re.search(rf"a VALID run does not count: {re.escape(SERVER)} = {LOW}: /", plan.err)
    done, made = loop.submit()
    assert (done.code, server_performance(made)) == (0, [State.VALID]), done.err
    assert (low, loop.packed_target()) == (f"{SERVER} = {LOW}", f"{SERVER} = {HIGHER}")

    packed = digests(loop.tree)
    loop.set_target(FAR)
    done, made = loop.submit()
    assert (done.code, server_performance(made)) == (1, [State.INVALID]), done.err
    assert digests(loop.tree) == packed
    assert f"write in {loop.conf}: {SERVER} = {HIGHER}" in done.err
    done, made = loop.submit()
    assert (done.code, made) == (1, [])
    assert "starting" not in done.err
    assert "measured with the present settings; --again" in done.err
    assert f"write in {loop.conf}: {SERVER} = {HIGHER}" in done.err

    loop.set_target(HIGHER)
    assert_nothing_is_made(loop)
    loop.set_target(LOW)
    plan, _ = loop.submit("--dry-run")
    assert len(re.findall(r"\w+ +\w+ +done", plan.err)) == len(ALL)
    assert_nothing_is_made(loop)
    assert loop.packed_target() == low


def assert_nothing_is_made(loop: Loop) -> None:
    done, made = loop.submit()
    assert (done.code, made) == (0, []), done.err
    assert "starting" not in done.err


def test_lower_target_is_measured_and_the_better_run_is_named(loop: Loop) -> None:
    loop.set_target(LOW - 5)
    plan, _ = loop.submit("--dry-run")
    assert re.search(rf"a better VALID run does not count: {re.escape(SERVER)} = \d+: /", plan.err)
    assert re.search(r"Server +performance +\d+ samples", plan.err)
    loop.set_target(LOW)


def test_comments_and_lines_of_other_benchmarks_measure_nothing(loop: Loop) -> None:
    loop.conf.write_text(f"# a comment\n{loop.conf.read_text()}llama3_1-8b.Server.target_qps = 7\n")
    assert_nothing_is_made(loop)


def test_run_that_tune_writes_counts(loop: Loop) -> None:
    words = ("--system-name", SYSTEM, "--scenarios", "Offline", "--profile", "smoke", "--write")
    tuned = loop.terminal.run("tune", *words)
    assert tuned.code == 0, tuned.err
    assert "submit counts the run that confirmed the target" in tuned.err
    assert re.search(rf"(?m)^{re.escape(OFFLINE)} = (?!600$)", loop.conf.read_text())
    before = len(loop.runs())
    assert_nothing_is_made(loop)
    assert len(loop.runs()) == before
    loop.edit(rf"(?m)^{re.escape(OFFLINE)} = .*$", f"{OFFLINE} = 600")


def test_package_takes_the_newest_complete_set_and_names_the_differences(loop: Loop) -> None:
    loop.set_target(FAR)
    packaged = loop.terminal.run("package", *NAMES)
    assert packaged.code == 0, packaged.err
    assert re.search(rf"a run made now differs in user_conf\.{re.escape(SERVER)}: \d+ vs {FAR}", packaged.err)
    loop.set_target(LOW)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the program, as after an upgrade."""
    for name in ("harness_llm", "setup", "submission"):
        shutil.copytree(
            CHECKOUT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "inference_results*")
        )
    for name in ("Makefile", "pyproject.toml", "LICENSE"):
        shutil.copy(CHECKOUT / name, tmp_path)
    return tmp_path


def append(file: Path, text: str) -> None:
    file.write_text(f"{file.read_text()}\n{text}\n")


def test_changed_program_measures_and_judges_what_the_change_concerns(loop: Loop, checkout: Path) -> None:
    def submit(*words: str) -> Ended:
        return loop.terminal.as_user(sys.executable, "-c", MAIN, *SUBMIT, *words, folder=checkout)

    package = checkout / "harness_llm"
    append(package / "loadgen" / "sut.py", "# a comment")
    append(package / "analysis" / "report" / "templates" / "tree.html.j2", "<!-- a comment -->")
    assert len(re.findall(r"\w+ +\w+ +done", submit("--dry-run").err)) == len(ALL)

    append(package / "evaluate" / "gates.py", "_CHANGED = 1")
    assert submit("--dry-run").err.count("to judge again") == len(ALL)
    before = {run.path for run in loop.runs()}
    judged = submit()
    assert judged.code == 0, judged.err
    assert "starting" not in judged.err
    assert {run.path for run in loop.runs()} == before
    assert len(re.findall(r"\w+ +\w+ +done", submit("--dry-run").err)) == len(ALL)

    append(package / "loadgen" / "sut.py", "_CHANGED = 1")
    plan = submit("--dry-run").err
    assert len(re.findall(r"\w+ +\w+ +\d+ samples", plan)) == len(ALL)
    assert plan.count("measuring_source: ") == len(ALL)
