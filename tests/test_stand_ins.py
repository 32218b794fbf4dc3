"""Published benchmarks end to end with the demo's model: LoadGen of the round, real vLLM, a checked tree."""

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from terminal import Ended, Terminal

from harness_llm.config.rules import load_round
from harness_llm.paths import Workspace
from harness_llm.runs.record import find_runs

pytestmark = [pytest.mark.engine(seconds=250), pytest.mark.slow]
NOWHERE = "http://127.0.0.1:9"
SUBMIT = ["submit", "--stand-in", "--company", "Acme", "--system-name", "pytest-box"]


@pytest.fixture(scope="module")
def terminal(new_workspace: Callable[[], Workspace], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Commands without a network, and without data of nltk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            patch.setenv(name, NOWHERE)
        workspace = new_workspace()
        workspace.cache.unlink()  # a link to the checkout's cache, which may have data of nltk
        terminal = Terminal(workspace)
        yield terminal
        terminal.close()


Submit = Callable[[str, str, str], Ended]


@pytest.fixture(scope="module")
def submit(terminal: Terminal) -> Submit:
    """Submits a stand-in once per benchmark."""

    @functools.cache
    def submit(model: str, round_name: str, scenario: str) -> Ended:
        samples = "72" if scenario == "SingleStream" else "512"  # SingleStream has one query in flight
        words = ["--model", model, "--round", round_name, "--scenarios", scenario, "--total-sample-count", samples]
        return terminal.run(*SUBMIT, *words)

    return submit


@pytest.mark.parametrize(
    ("stand_in", "places"),
    [
        (
            ("mixtral-8x7b", "v5.0", "Offline"),
            [
                "open/Acme/code",
                "open/Acme/measurements/pytest-box/mixtral-8x7b/Offline/pytest-box_Offline.json",
                "open/Acme/compliance/pytest-box/mixtral-8x7b/Offline/TEST06/verify_accuracy.txt",
            ],
        ),
        (
            ("gpt-oss-120b", "v6.0", "Offline"),
            [
                "open/Acme/src",
                "open/Acme/results/pytest-box/gpt-oss-120b/Offline/measurements.json",
                "open/Acme/results/pytest-box/gpt-oss-120b/Offline/TEST07/verify_accuracy.txt",
                "open/Acme/results/pytest-box/gpt-oss-120b/Offline/TEST09/verify_output_len.txt",
            ],
        ),
        (
            ("llama3.1-8b-edge", "v5.1", "SingleStream"),
            ["open/Acme/measurements/pytest-box/llama3.1-8b-edge/SingleStream/pytest-box_SingleStream.json"],
        ),
    ],
)
def test_stand_in_submission_has_the_layout_of_its_round(
    terminal: Terminal, submit: Submit, stand_in: tuple[str, str, str], places: list[str]
) -> None:
    _, round_name, _ = stand_in
    done = submit(*stand_in)
    assert done.code == 0, done.err
    tree = Path(done.out.splitlines()[0])
    assert tree.name == f"inference_results_{round_name.removeprefix('v')}-smoke"
    for place in places:
        assert (tree / place).exists(), place
    assert "NOT SUBMITTABLE" in (tree / "open/Acme/documentation/README.md").read_text()
    checked = terminal.run("check", str(tree), "--round", round_name, "--json")
    severities = {finding["severity"] for finding in json.loads(checked.out)["findings"]}
    assert severities <= {"scale", "warning"}
    assert checked.code == 0


@pytest.mark.parametrize("test", ["TEST07", "TEST09"])
def test_verify_prints_the_packaged_verdict(terminal: Terminal, submit: Submit, test: str) -> None:
    assert submit("gpt-oss-120b", "v6.0", "Offline").code == 0
    (run,) = [run for run in find_runs(terminal.workspace.logs, "pytest-box") if run.run_key.test == test]
    words = ["--model", "gpt-oss-120b", "--round", "v6.0", "--stand-in", "--test", test, "--total-sample-count", "512"]
    done = terminal.run("verify", str(run.path), "--scenario", "Offline", *words)
    verdict = load_round("v6.0").compliance[test].verdict
    assert done.out == (run.path / verdict).read_text(), done.err
    assert done.code == (0 if "TEST PASS" in done.out else 1)
