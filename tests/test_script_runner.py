import json
import os
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE
from harness_llm.errors import ConfigError, EnvironmentMissing, RunFailed
from harness_llm.evaluate.official import namespaces as jail
from harness_llm.evaluate.official import script_runner as evaluator
from harness_llm.evaluate.official.script_runner import evaluate, require_accuracy_script
from harness_llm.evaluate.official.scripts import ACCURACY_SCRIPTS, Inputs, find_script

METHODS = sorted(name for name, script in ACCURACY_SCRIPTS.items() if script.executes)
# In place of the reference's scripts: modules with the functions that are called, which check what they see.
GRADERS = """
import os
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "submodules", "LiveCodeBench")

def load_lcb_benchmark():
    return open(os.path.join(FOLDER, "livecodebench/code_generation_lite/test.jsonl")).read()

def evaluate_math500(parsed, ground_truth):
    assert os.path.isdir("submodules/prm800k")
    return parsed == ground_truth
"""
MAINS = {
    "deepseek-r1": """
def main():
    import argparse, json
    parser = argparse.ArgumentParser()
    for option in ("--input-file", "--dataset-file", "--output-file"):
        parser.add_argument(option, required=True)
    options = parser.parse_args()
    assert options.input_file.endswith(".json") and open(options.dataset_file).read() == "source"
    assert open("deepseek-ai/DeepSeek-R1/tokenizer.json").read() == "tokenizer"
    answers = json.load(open(options.input_file))
    open(options.output_file, "w").write("graded")
    print("\\nResults\\n")
    print({"exact_match": 81.25, "tokens_per_sample": 3886.2274, "num-samples": len(answers)})
""",
    "gpt-oss-120b": """
import eval_accuracy
def main():
    import argparse, json
    parser = argparse.ArgumentParser()
    for option in ("--mlperf-log", "--reference-data", "--output-file"):
        parser.add_argument(option, required=True)
    options = parser.parse_args()
    assert json.load(open(options.mlperf_log)) and open(options.reference_data).read() == "source"
    assert open("openai/gpt-oss-120b/tokenizer.json").read() == "tokenizer"
    assert eval_accuracy.load_lcb_benchmark() == "problems"
    print("Overall raw accuracy: 80.00%")
    print("\\n'exact_match': 83.130")
""",
}
SCORES = {
    "deepseek-r1": {"EXACT_MATCH": 81.25, "TOKENS_PER_SAMPLE": 3886.2274, "GEN_NUM": 2},
    "gpt-oss-120b": {"EXACT_MATCH": 83.13, "TOKENS_PER_SAMPLE": 2.5, "GEN_NUM": 2},
}
# What a program of the model must not be able to do, in the place of an evaluator.
MISUSES = {
    "network": "import socket; socket.create_connection(('127.0.0.1', {port}), 2).close()",
    "file": "open({secret!r}).close()",
    "write": "open({script!r}, 'a').close()",
    "system": "open('/usr/left', 'w')",
    "processes": "import os; os.kill({pid}, 0)",
    "variable": "import os; os.environ['HF_TOKEN']",
}


def missing() -> str:
    try:
        jail.require_namespaces()
    except EnvironmentMissing as error:
        return f"{error.what}: {error.found}"
    return ""


pytestmark = [pytest.mark.skipif(bool(missing()), reason=missing()), pytest.mark.processes]


class Made:
    """A log of two answers, a data set, a tokenizer, LiveCodeBench's problems, and a checkout."""

    def __init__(self, folder: Path) -> None:
        self.checkout, self.log, self.source = folder / "checkout", folder / "log.json", folder / "source.pkl"
        self.checkpoint, self.problems = folder / "checkpoint", folder / "livecodebench"
        for made, name, text in (
            (self.checkpoint, "tokenizer.json", "tokenizer"),
            (self.problems, "test.jsonl", "problems"),
        ):
            made.mkdir()
            (made / name).write_text(text)
        self.source.write_text("source")
        ids = {0: [1, 2, 3], 1: [4, 5]}
        entries = [
            {"seq_id": i, "qsl_idx": i, "data": np.array(x, "<i4").tobytes().hex(), "token_count": len(x)}
            for i, x in ids.items()
        ]
        self.log.write_text(json.dumps(entries))
        for method in METHODS:
            self.script(method).parent.mkdir(parents=True)
            (self.script(method).parent / "eval_accuracy.py").write_text(GRADERS)
            with self.script(method).open("a") as file:
                file.write(MAINS[method])
        modules = self.checkout / "language/deepseek-r1/submodules"
        router = modules / "LiveCodeBench/lcb_runner/runner/scenario_router.py"
        router.parent.mkdir(parents=True)
        router.write_text("")
        (modules / "prm800k").mkdir()
        (self.checkout / "language/gpt-oss-120b/submodules").symlink_to("../deepseek-r1/submodules")

    def script(self, method: str) -> Path:
        return self.checkout / ACCURACY_SCRIPTS[method].path

    def score(self, method: str, samples: int = 2) -> dict[str, float]:
        return evaluate(method, Inputs(self.log, self.source, self.checkpoint, self.problems), samples)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    made = Made(tmp_path)
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setenv(CHECKOUT_VARIABLE, str(made.checkout))
    monkeypatch.setattr(evaluator, "PYTHON", Path(sys.executable))
    return made


@pytest.mark.parametrize("method", METHODS)
def test_evaluator_scores_and_leaves_its_checkout_unchanged(made: Made, method: str) -> None:
    before = sorted(made.checkout.rglob("*"))
    require_accuracy_script(method)
    assert made.score(method) == SCORES[method]
    assert sorted(made.checkout.rglob("*")) == before


@pytest.mark.parametrize("named", [True, False])
def test_checkout_of_make_build_or_image_is_used(made: Made, named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not named:
        monkeypatch.delenv(CHECKOUT_VARIABLE)
        build = Path(made.checkout.parent, "workspace", "build")
        build.mkdir(parents=True)
        made.checkout.rename(build / "inference")
    require_accuracy_script("gpt-oss-120b")


@pytest.mark.parametrize("method", METHODS)
def test_missing_checkout_is_reported(made: Made, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHECKOUT_VARIABLE, "/no/such/checkout")
    with pytest.raises(EnvironmentMissing, match="missing accuracy script") as caught:
        require_accuracy_script(method)
    assert CHECKOUT_VARIABLE in caught.value.hint


def test_missing_packages_are_reported(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "PYTHON", Path("/no/such/python"))
    with pytest.raises(EnvironmentMissing, match="missing packages of the official scripts") as caught:
        require_accuracy_script("deepseek-r1")
    assert caught.value.hint == "make graders"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("eval_accuracy.py", "import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        (
            "../deepseek-r1/submodules/LiveCodeBench/lcb_runner/runner/scenario_router.py",
            "raise OSError('no submodule')",
            "OSError: no submodule",
        ),
    ],
)
def test_failing_grader_is_found_before_a_run(made: Made, method: str, file: str, text: str, found: str) -> None:
    (made.script(method).parent / file).write_text(text)
    with pytest.raises(EnvironmentMissing, match="accuracy script cannot run here") as caught:
        require_accuracy_script(method)
    assert caught.value.found == found
    assert "make graders" in caught.value.hint


def test_math_grader_of_deepseek_is_tried(made: Made) -> None:
    made.script("deepseek-r1").write_text(GRADERS.replace("parsed == ground_truth", "False"))
    with pytest.raises(EnvironmentMissing, match="accuracy script cannot run here"):
        require_accuracy_script("deepseek-r1")


def test_missing_problems_are_an_error(made: Made) -> None:
    (made.problems / "test.jsonl").unlink()
    for method in METHODS:
        with pytest.raises(RunFailed, match="accuracy script failed"):
            made.score(method)


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("def main(): raise SystemExit('it broke')", "accuracy script failed"),
        ("def main(): print({'exact_match': None})", "no score in the output"),
    ],
)
def test_evaluator_without_a_score_is_reported(made: Made, script: str, what: str) -> None:
    made.script("gpt-oss-120b").write_text(script)
    with pytest.raises(RunFailed, match=what):
        made.score("gpt-oss-120b")


@pytest.mark.parametrize("misuse", MISUSES)
def test_programs_in_an_evaluator_have_no_network_and_no_files(
    made: Made, misuse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "token"
    secret.write_text("hf_secret")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        values = {"port": server.getsockname()[1], "secret": str(secret), "pid": os.getpid()}
        values["script"] = str(made.script("gpt-oss-120b"))
        attempt = MISUSES[misuse].format(**values)
        exec(attempt.replace("open('/usr/left', 'w')", "pass"), {})  # noqa: S102 - works outside
        made.script("gpt-oss-120b").write_text(f"def main():\n    {attempt}\n    print({{'exact_match': 1.0}})\n")
        with pytest.raises(RunFailed, match="accuracy script failed") as caught:
            made.score("gpt-oss-120b")
    assert "Error" in caught.value.found


def test_evaluator_has_limited_time(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "LIMIT_S", 2)
    made.script("gpt-oss-120b").write_text("import time\ndef main(): time.sleep(600)\n")
    with pytest.raises(RunFailed, match="time limit of the scoring sandbox exceeded"):
        made.score("gpt-oss-120b")


def test_missing_answers_are_refused(made: Made) -> None:
    with pytest.raises(ConfigError, match="1 of 3 samples have no answer"):
        made.score("gpt-oss-120b", samples=3)


def test_unknown_evaluator_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown accuracy script"):
        find_script("mmlu")
