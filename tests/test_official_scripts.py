"""The official accuracy and compliance scripts on our logs: their output equals ours and is packaged."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nltk
import numpy as np
import pandas as pd
import punkt
import pytest
from punkt import gsm8k
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from trees import answers

from harness_llm.config.assets import Assets
from harness_llm.config.benchmark import benchmark_names, load_benchmark
from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE
from harness_llm.config.rules import load_round
from harness_llm.errors import EnvironmentMissing, GateFailed
from harness_llm.evaluate.accuracy_file import parse, render
from harness_llm.evaluate.decoding import decoder
from harness_llm.evaluate.official.accuracy_script import require_script, score_officially, script_of
from harness_llm.evaluate.official.output import OfficialOutput
from harness_llm.evaluate.official.verdict_script import verify_officially
from harness_llm.evaluate.score import answers_by_index, score_answers
from harness_llm.loadgen.logs import read_accuracy_log
from harness_llm.paths import CHECKOUT, Workspace

SAMPLES = 60
TESTS = load_round("v6.1").compliance
SCORED = ("llama2-70b", "llama3.1-8b", "llama3.1-405b")


class Made:
    """Answers to questions of GSM8K, as a benchmark publishes its data set and LoadGen logs its answers."""

    def __init__(self, name: str, folder: Path) -> None:
        self.benchmark = load_benchmark(name, Workspace(CHECKOUT))
        self.log, self.source, self.checkpoint = folder / "log.json", folder / "source", folder / "checkpoint"
        targets = gsm8k("answer")[:SAMPLES]
        texts = [
            f"{target[: len(target) // 2]} {other}" for target, other in zip(targets, gsm8k("question"), strict=False)
        ]
        self.targets = targets
        kinds = ["rouge", "niah_em", "qa_em"] if name == "llama3.1-405b" else [""]
        self.kinds = [kinds[i % len(kinds)] for i in range(SAMPLES)]
        tokenizer = train_tokenizer(self.checkpoint, [*targets, *texts])
        self.write_log([tokenizer.encode(text).ids for text in texts])
        self.write_source(name)

    def write_log(self, ids: list[list[int]]) -> None:
        order = list(range(SAMPLES))
        random.Random(0).shuffle(order)  # noqa: S311
        entries = [
            {"seq_id": s, "qsl_idx": i, "data": np.array(ids[i], "<i4").tobytes().hex(), "token_count": len(ids[i])}
            for s, i in enumerate([*order, order[0]])  # one sample was asked twice
        ]
        self.log.write_text(json.dumps(entries))

    def write_source(self, name: str) -> None:
        if name == "llama3.1-8b":
            rows = [{"instruction": "", "input": "", "tok_input": [1], "output": target} for target in self.targets]
            self.source.write_text(json.dumps(rows))
            return
        column = "output" if name == "llama2-70b" else "gt_output"
        frame = pd.DataFrame({column: self.targets, "metric": self.kinds}, dtype=object)
        frame.columns = pd.Index(list(frame.columns), dtype=object)
        frame.to_pickle(self.source)

    @property
    def assets(self) -> Assets:
        return Assets(self.checkpoint, self.checkpoint, {}, self.source, sources={"evaluation": self.source})

    @property
    def own(self) -> str:
        """accuracy.txt as harness-llm writes it."""
        accuracy = self.benchmark.accuracy
        found = answers_by_index(read_accuracy_log(self.log), SAMPLES)
        return render(score_answers(found, self.targets, self.kinds, decoder(self.checkpoint), accuracy))


def train_tokenizer(folder: Path, texts: list[str]) -> Tokenizer:
    """A tokenizer that gives every text back, in a folder as transformers reads it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["</s>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "clean_up_tokenization_spaces": False}
        )
    )
    return tokenizer


@pytest.fixture(autouse=True)
def _workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path / "workspace"))


@pytest.fixture
def _splitter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "nltk")])
    monkeypatch.setenv("NLTK_DATA", str(tmp_path / "nltk"))
    punkt.train(tmp_path / "nltk", gsm8k("question"))
    punkt.forget()
    yield
    punkt.forget()


def test_every_benchmark_has_a_script_or_a_reason() -> None:
    workspace = Workspace(CHECKOUT)
    without = [name for name in benchmark_names(workspace) if script_of(load_benchmark(name, workspace)) is None]
    assert without == ["gptj", "mixtral-8x7b"]


@pytest.mark.inference
@pytest.mark.graders
@pytest.mark.usefixtures("_splitter")
@pytest.mark.parametrize("name", SCORED)
def test_official_script_gives_our_scores_without_a_network(name: str, tmp_path: Path) -> None:
    made = Made(name, tmp_path)
    script = require_script(made.benchmark)
    output = score_officially(made.benchmark, made.assets, made.log, made.own, gated=made.benchmark.accuracy.metrics)
    assert (output.script, output.reason) == (script, "")
    assert output.text.lstrip().startswith("Results\n\n{")
    assert parse(output.text).keys() >= set(made.benchmark.accuracy.metrics)
    assert parse(output.text)["GEN_NUM"] == SAMPLES
    again = score_officially(made.benchmark, made.assets, made.log, made.own)
    assert again == output


@pytest.mark.inference
@pytest.mark.graders
@pytest.mark.usefixtures("_splitter")
def test_difference_from_our_scores_is_an_error(tmp_path: Path) -> None:
    made = Made("llama2-70b", tmp_path)
    scores = parse(made.own)
    wrong = render(scores | {"ROUGE2": round(scores["ROUGE2"] + 0.01, 4)})
    with pytest.raises(GateFailed, match="computes other scores") as caught:
        score_officially(made.benchmark, made.assets, made.log, wrong)
    assert caught.value.found.startswith("ROUGE2: ")
    assert "\n" not in caught.value.found


@pytest.mark.inference
def test_our_accuracy_file_is_packaged_without_the_graders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [])
    made = Made("llama2-70b", tmp_path)
    output = score_officially(made.benchmark, made.assets, made.log, "{'rouge1': 1.0}\n")
    assert output == OfficialOutput("{'rouge1': 1.0}\n", reason="missing sentence splitter of nltk")


def test_our_accuracy_file_is_packaged_without_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHECKOUT_VARIABLE, raising=False)
    benchmark = load_benchmark("llama2-70b", Workspace(CHECKOUT))
    with pytest.raises(EnvironmentMissing, match="missing checkout of mlcommons/inference"):
        require_script(benchmark)
    assets = Assets(tmp_path, tmp_path, {}, tmp_path)
    output = score_officially(benchmark, assets, tmp_path / "log.json", "ours")
    assert output == OfficialOutput("ours", reason="missing checkout of mlcommons/inference")


def compliance_run(folder: Path, test: str, entries: list[dict[str, Any]], own: str) -> Path:
    folder.mkdir()
    (folder / "mlperf_log_accuracy.json").write_text(json.dumps(entries))
    (folder / TESTS[test].verdict).write_text(own)
    return folder


TEST06 = (
    "First token check pass: {}\nEOS check pass: True\nSample length check pass: True\nTEST06 verification complete\n"
)


@pytest.mark.inference
@pytest.mark.parametrize(("scenario", "first"), [("Offline", "Skipped"), ("Server", "True")])
@pytest.mark.parametrize("name", ["llama2-70b", "llama3.1-8b"])
def test_test06_is_verified_by_the_official_script(tmp_path: Path, name: str, scenario: str, first: str) -> None:
    run = compliance_run(tmp_path / "run", "TEST06", answers(scenario), TEST06.format(first))
    benchmark = load_benchmark(name, Workspace(CHECKOUT))
    output = verify_officially("TEST06", TESTS["TEST06"], benchmark, scenario, run, scored=None)
    assert (output.text, output.script) == (TEST06.format(first), "compliance/TEST06/run_verification.py")
    assert sorted(file.name for file in run.iterdir()) == ["mlperf_log_accuracy.json", "verify_accuracy.txt"]


@pytest.mark.inference
def test_difference_from_our_verdict_is_an_error(tmp_path: Path) -> None:
    entries = answers("Offline")
    entries[3]["token_count"] += 1
    run = compliance_run(tmp_path / "run", "TEST06", entries, TEST06.format("Skipped"))
    benchmark = load_benchmark("llama2-70b", Workspace(CHECKOUT))
    with pytest.raises(GateFailed, match="gives another verdict") as caught:
        verify_officially("TEST06", TESTS["TEST06"], benchmark, "Offline", run, scored=None)
    assert "Sample length check pass: False" in caught.value.found


@pytest.mark.inference
@pytest.mark.parametrize(("length", "verdict"), [(1278, "PASS"), (1100, "FAIL")])
def test_test09_is_verified_by_the_official_script(tmp_path: Path, length: int, verdict: str) -> None:
    entries = [{"seq_id": 0, "qsl_idx": 0, "data": "00" * 4 * length, "token_count": length}]
    run = compliance_run(tmp_path / "run", "TEST09", entries, f"TEST {verdict}\n")
    benchmark = load_benchmark("gpt-oss-120b", Workspace(CHECKOUT))
    output = verify_officially("TEST09", TESTS["TEST09"], benchmark, "Offline", run, scored=None)
    assert f"TEST {verdict}" in output.text.splitlines()
    assert "Max check pass: True" in output.text


@pytest.mark.inference
@pytest.mark.parametrize(("score", "verdict"), [("60.698", "PASS"), ("60.697", "FAIL")])
def test_test07_uses_the_score_of_the_official_script(tmp_path: Path, score: str, verdict: str) -> None:
    run = compliance_run(tmp_path / "run", "TEST07", [], f"TEST {verdict}\n")
    benchmark = load_benchmark("gpt-oss-120b", Workspace(CHECKOUT))
    scored = OfficialOutput(f"Overall\n'exact_match': {score}\n", "language/gpt-oss-120b/eval_mlperf_accuracy.py")
    output = verify_officially("TEST07", TESTS["TEST07"], benchmark, "Offline", run, scored=scored)
    assert {f"'exact_match': {score}", f"TEST {verdict}"} <= set(output.text.splitlines())
    without = verify_officially(
        "TEST07", TESTS["TEST07"], benchmark, "Offline", run, scored=OfficialOutput("", reason="x")
    )
    assert without == OfficialOutput(f"TEST {verdict}\n", reason="the accuracy script did not run: x")
