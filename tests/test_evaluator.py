import json
from pathlib import Path

import numpy as np
import pytest

from harness_llm.accuracy.evaluator import EVALUATORS, evaluate
from harness_llm.check.official import CHECKOUT_VARIABLE
from harness_llm.errors import ConfigError, EnvironmentMissing, RunFailed

METHODS = sorted(EVALUATORS)
# Stands where the reference's script does: takes its options, reads the log, and prints what it would.
GRADERS = """
def load_lcb_benchmark():
    return {"1": "a problem"}

def evaluate_math500(parsed, ground_truth):
    return parsed == ground_truth
"""
SCRIPTS = {
    "deepseek-r1": """
if __name__ == "__main__":
    import argparse, json, os
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
import argparse, json, os
parser = argparse.ArgumentParser()
for option in ("--mlperf-log", "--reference-data", "--output-file"):
    parser.add_argument(option, required=True)
options = parser.parse_args()
assert json.load(open(options.mlperf_log)) and open(options.reference_data).read() == "source"
assert open("openai/gpt-oss-120b/tokenizer.json").read() == "tokenizer"
print("Overall raw accuracy: 80.00%")
print("\\n'exact_match': 83.130")
""",
}
SCORES = {
    "deepseek-r1": {"EXACT_MATCH": 81.25, "TOKENS_PER_SAMPLE": 3886.2274, "GEN_NUM": 2},
    "gpt-oss-120b": {"EXACT_MATCH": 83.13, "TOKENS_PER_SAMPLE": 2.5, "GEN_NUM": 2},
}


class Inputs:
    """A log of two answers, a data set, a tokenizer, and a checkout of which MLPERF_INFERENCE_DIR tells."""

    def __init__(self, folder: Path) -> None:
        self.checkout, self.log, self.source = folder / "checkout", folder / "log.json", folder / "source.pkl"
        self.checkpoint = folder / "checkpoint"
        self.checkpoint.mkdir()
        (self.checkpoint / "tokenizer.json").write_text("tokenizer")
        self.source.write_text("source")
        ids = {0: [1, 2, 3], 1: [4, 5]}
        entries = [
            {"seq_id": i, "qsl_idx": i, "data": np.array(x, "<i4").tobytes().hex(), "token_count": len(x)}
            for i, x in ids.items()
        ]
        self.log.write_text(json.dumps(entries))
        for method, evaluator in EVALUATORS.items():
            script = self.checkout / evaluator.script
            script.parent.mkdir(parents=True)
            (script.parent / "eval_accuracy.py").write_text(GRADERS)
            script.write_text(SCRIPTS[method] if method == "gpt-oss-120b" else GRADERS + SCRIPTS[method])
            (script.parent / "lcb_runner").mkdir()
            (script.parent / "lcb_runner" / "evaluation.py").write_text("")

    def script(self, method: str) -> Path:
        return self.checkout / EVALUATORS[method].script

    def score(self, method: str, samples: int = 2) -> dict[str, float]:
        return evaluate(method, self.log, self.source, self.checkpoint, samples)


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inputs:
    inputs = Inputs(tmp_path)
    monkeypatch.setenv(CHECKOUT_VARIABLE, str(inputs.checkout))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    return inputs


@pytest.mark.parametrize("method", METHODS)
def test_the_reference_scores_and_its_checkout_stays_as_it_is(inputs: Inputs, method: str) -> None:
    before = sorted(inputs.checkout.rglob("*"))
    assert inputs.score(method) == SCORES[method]
    assert sorted(inputs.checkout.rglob("*")) == before


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("checkout", "found"), [("", "it is not set"), ("/no/such/checkout", "no such file")])
def test_without_a_checkout(
    inputs: Inputs, method: str, checkout: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHECKOUT_VARIABLE, checkout)
    with pytest.raises(EnvironmentMissing, match="reference's evaluator, which is not there") as caught:
        inputs.score(method)
    assert caught.value.found == found
    assert CHECKOUT_VARIABLE in caught.value.hint


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("graders", "found"),
    [
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("def load_lcb_benchmark():\n    return {}", "AssertionError"),
        ("def load_lcb_benchmark():\n    raise OSError('no data')", "OSError: no data"),
    ],
)
def test_a_grader_that_would_take_all_for_wrong(inputs: Inputs, method: str, graders: str, found: str) -> None:
    (inputs.script(method).parent / "eval_accuracy.py").write_text(graders)
    with pytest.raises(EnvironmentMissing, match="cannot work here") as caught:
        inputs.score(method)
    assert caught.value.found == found
    assert f"pip install -r {EVALUATORS[method].requirements}" in caught.value.hint
    assert "git submodule update --init" in caught.value.hint


def test_deepseek_needs_its_grader_of_formulas(inputs: Inputs) -> None:
    broken = GRADERS.replace("parsed == ground_truth", "False")
    (inputs.script("deepseek-r1").parent / "eval_accuracy.py").write_text(broken)
    with pytest.raises(EnvironmentMissing, match="cannot work here"):
        inputs.score("deepseek-r1")


@pytest.mark.parametrize(
    ("script", "what"),
    [("raise SystemExit('it broke')", "evaluator failed"), ("print({'exact_match': None})", "printed no score")],
)
def test_an_evaluator_without_a_score(inputs: Inputs, script: str, what: str) -> None:
    inputs.script("gpt-oss-120b").write_text(script)
    with pytest.raises(RunFailed, match=what):
        inputs.score("gpt-oss-120b")


def test_answers_are_complete(inputs: Inputs) -> None:
    with pytest.raises(ConfigError, match="1 of 3 samples have no answer"):
        inputs.score("gpt-oss-120b", samples=3)
