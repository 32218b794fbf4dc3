import random
import re
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import nltk
import numpy as np
import punkt
import pytest
from punkt import EVERY_GSM8K, gsm8k
from rouge_score.rouge_scorer import RougeScorer

from harness_llm.config.assets import Assets
from harness_llm.config.benchmark import Accuracy, benchmark_names, load_benchmark
from harness_llm.errors import ConfigError, EnvironmentMissing, RunFailed
from harness_llm.evaluate import score as scoring
from harness_llm.evaluate.mbxp import container
from harness_llm.evaluate.official.scripts import ACCURACY_SCRIPTS
from harness_llm.evaluate.run_result import Scorer
from harness_llm.evaluate.score import answers_by_index, score_answers
from harness_llm.loadgen.logs import Answer
from harness_llm.paths import CHECKOUT, Workspace

UUID = re.compile(r"\w{8}(?:-\w{4}){3}-\w{12}")


def encode(text: str) -> list[int]:
    """One id a character, and the end-of-sequence id."""
    return [*map(ord, text), 0]


def decode(answers: list[list[int]]) -> list[str]:
    return ["".join(chr(i) for i in ids if i) for ids in answers]


def accuracy(*metrics: str, sentence_split: bool = False, **scoring: str) -> Accuracy:
    values = {"metrics": metrics, "sentence_split": sentence_split} | ({"scoring": scoring} if scoring else {})
    return Accuracy.model_validate(values)


def score(
    targets: list[str], texts: list[str], demand: Accuracy, kinds: list[str] | None = None, workers: int = 1
) -> dict[str, float]:
    return score_answers([encode(text) for text in texts], targets, kinds, decode, demand, workers=workers)


def answer(index: int, *ids: int) -> Answer:
    return Answer(0, index, np.array(ids, dtype=np.int32), len(ids), None)


def test_first_answer_to_a_sample_is_scored() -> None:
    assert answers_by_index([answer(1, 7), answer(0, 5, 6), answer(1, 8)], samples=2) == [[5, 6], [7]]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([answer(0, 1)], "1 of 2 samples have no answer"),
        ([answer(0, 1), answer(2, 1)], "answer to sample 2"),
        ([answer(-1, 1)], "answer to sample -1"),
    ],
)
def test_missing_and_unknown_samples_are_refused(entries: list[Answer], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        answers_by_index(entries, samples=2)


@pytest.mark.parametrize(
    ("targets", "kinds", "message"),
    [
        (["one"], None, "number of targets differs"),
        (["one", "two"], [""], "number of kinds differs"),
        (["one", "two"], ["", "GSM8K"], "samples of a kind without a scoring method"),
    ],
)
def test_inconsistent_scoring_input_is_refused(targets: list[str], kinds: list[str] | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        score(targets, ["one", "two"], accuracy("ROUGE1"), kinds)


@pytest.fixture(scope="module")
def splitter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sentences of real texts, for this process and those that it starts."""
    folder = tmp_path_factory.mktemp("nltk")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nltk.data, "path", [str(folder)])
        patch.setenv("NLTK_DATA", str(folder))
        punkt.train(folder, gsm8k("question"))
        punkt.forget()
        yield
    punkt.forget()


@pytest.fixture(scope="module", params=EVERY_GSM8K)
def pairs(request: pytest.FixtureRequest) -> list[tuple[str, str]]:
    """Targets, and answers that have something of them."""
    targets = [text for field in ("question", "answer") for text in gsm8k(field, request.param)]
    generator = random.Random(0)  # noqa: S311
    texts = []
    for index, target in enumerate(targets):
        sentences = re.split(r"(?<=[.?])\s", f"{target[: len(target) // 2]} {targets[index - 1]}")
        generator.shuffle(sentences)
        texts.append("  ".join(sentences[: 1 + index % 5]) + "\n")
    return list(zip(targets, texts, strict=True))


def sentences(text: str) -> str:
    return "\n".join(nltk.sent_tokenize(text.strip()))


def test_rouge_and_lengths_equal_those_of_the_reference(splitter: None, pairs: list[tuple[str, str]]) -> None:
    targets, texts = map(list, zip(*pairs, strict=True))
    kinds = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    scorer = RougeScorer(kinds, use_stemmer=True)
    rows = [scorer.score(sentences(target), sentences(text)) for target, text in zip(targets, texts, strict=True)]
    demand = accuracy(*map(str.upper, kinds), "GEN_LEN", "TOKENS_PER_SAMPLE", sentence_split=True)
    assert score(targets, texts, demand) == {
        **{kind.upper(): round(float(np.mean([row[kind].fmeasure for row in rows])) * 100, 4) for kind in kinds},
        "GEN_LEN": sum(len(sentences(text)) for text in texts),
        "TOKENS_PER_SAMPLE": round(float(np.mean([len(text) + 1 for text in texts])), 1),
        "GEN_NUM": len(pairs),
    }


def test_scores_do_not_depend_on_the_number_of_workers(
    splitter: None, pairs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "_TEXTS_PER_WORKER", 10)
    targets, texts = map(list, zip(*pairs[:30], strict=True))
    demand = accuracy("ROUGE1", "ROUGELSUM", "GEN_LEN", sentence_split=True)
    assert score(targets, texts, demand, workers=2) == score(targets, texts, demand)


def test_killed_process_of_the_scoring_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel kills it if host memory is short."""
    monkeypatch.setattr(scoring, "_TEXTS_PER_WORKER", 1)
    with pytest.raises(RunFailed, match="a process of the scoring was killed"):
        scoring._spread(2, signal.raise_signal, [signal.SIGKILL] * 4)


def needles(label: str, answer: str) -> float:
    """RULER's string match as the reference calls it: it walks over characters."""
    wanted, found = UUID.findall(label), UUID.findall(answer)
    hits = [np.mean([c in f for c in w]) for f, w in zip(found, wanted, strict=False)]
    return round(float(sum(hits)) / len(found) * 100, 2) if found else 0.0


def question(label: str, answer: str) -> float:
    answer = answer.rpartition("Answer: ")[2]
    squeezed = "".join(answer.split()).lower()
    return 100.0 if answer in label or any("".join(e.split()).lower() in squeezed for e in label.split("|")) else 0.0


def sample_of_405b(index: int, target: str, text: str, generator: random.Random) -> tuple[str, str, str]:
    """Kind, target and answer: some right, some wrong, some in between."""
    if index % 5 == 0:
        return "rouge", target, text
    if index % 5 % 2:
        ids = [str(uuid.UUID(int=generator.getrandbits(128))) for _ in range(4)]
        return "niah_em", " ".join(ids[:2]), f"{text} {ids[index % 4]}, {ids[1]}. Or {ids[index % 3]}?"
    word, other = generator.choice(target.split()), generator.choice(text.split())
    return "qa_em", f"{target}|{word}", f"{text} Answer: {other} {word[index % 4 // 2 :]}"


def rouge_l(label: str, answer: str) -> float:
    return 100 * float(RougeScorer(["rougeL"], use_stemmer=True).score(label, answer)["rougeL"].fmeasure)


def test_scores_of_llama3_1_405b_equal_those_of_the_reference(splitter: None, pairs: list[tuple[str, str]]) -> None:
    generator = random.Random(1)  # noqa: S311
    rows = [sample_of_405b(index, *pair, generator) for index, pair in enumerate(pairs)]
    judges = {"rouge": rouge_l, "niah_em": needles, "qa_em": question}
    values: dict[str, list[float]] = {kind: [] for kind in judges}
    for kind, target, text in rows:
        values[kind].append(judges[kind](sentences(target), sentences(text)))
    assert all(10 < np.mean(column) < 90 for column in values.values())
    demand = accuracy("ROUGEL", "EXACT_MATCH", sentence_split=True, rouge="rouge", niah_em="niah_em", qa_em="qa_em")
    kinds, targets, texts = map(list, zip(*rows, strict=True))
    found = score(targets, texts, demand, kinds)
    assert found["ROUGEL"] == pytest.approx(np.mean(values["rouge"]), rel=1e-12)
    assert found["EXACT_MATCH"] == pytest.approx(np.mean(values["niah_em"] + values["qa_em"]), rel=1e-12)
    assert found["ROUGEL"] != round(found["ROUGEL"], 4)  # these means are not rounded


def test_mixtral_scores_each_kind_of_sample() -> None:
    """OpenOrca's texts stay out of GSM8K's mean, and the tokens are everybody's."""
    solved = [text.replace("####", "The answer is") for text in gsm8k("answer")]
    numbers = [text.rpartition(" ")[2] for text in solved]
    wrong = [f"{text}0" if index % 4 == 0 else f"{text}\nQ: And 7?" for index, text in enumerate(solved)]
    targets, texts = ["a cat"] * 10 + numbers, ["the cat"] * 10 + wrong
    right = sum(index % 4 != 0 and "," not in number for index, number in enumerate(numbers))
    demand = accuracy("ROUGE1", "GSM8K", "MBXP", "TOKENS_PER_SAMPLE", OpenOrca="rouge", GSM8K="gsm8k", MBXP="mbxp")
    assert score(targets, texts, demand, ["OpenOrca"] * 10 + ["GSM8K"] * len(numbers)) == {
        "ROUGE1": 50.0,
        "GSM8K": 100.0 * right / len(numbers),
        "TOKENS_PER_SAMPLE": round(sum(len(text) + 1 for text in texts) / len(texts), 1),
        "GEN_NUM": len(texts),
    }


def test_programs_are_not_scored_without_a_container_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "ENGINES", ("no-such-engine",))
    target = '{"lang": "python", "entry_point": "f", "test": ""}'
    with pytest.raises(EnvironmentMissing, match="missing container engine"):
        score([target], ["def f(): pass"], accuracy("MBXP", MBXP="mbxp"), ["MBXP"])


def test_stand_in_of_mbxp_keeps_its_metric() -> None:
    demand = accuracy("GSM8K", "MBXP", "EXACT_MATCH", GSM8K="gsm8k", MBXP="exact", other="exact")
    texts = ["7", " same\n", "other", "same"]
    kinds = ["GSM8K", "MBXP", "MBXP", "other"]
    assert score(["7", "same", "same", "same"], texts, demand, kinds) == {
        "GSM8K": 100.0,
        "MBXP": 50.0,
        "EXACT_MATCH": 100.0,
        "GEN_NUM": 4,
    }


@pytest.mark.parametrize(("split", "percent"), [(False, 50.0), (True, 100.0)])
def test_sentences_are_split_into_lines(splitter: None, split: bool, percent: float) -> None:
    targets, texts = ["We ate fish. They ran off."], ["They ran off. We ate fish."]
    assert score(targets, texts, accuracy("ROUGELSUM", sentence_split=split))["ROUGELSUM"] == percent


def test_missing_sentence_splitter_is_reported_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    punkt.forget()
    with pytest.raises(EnvironmentMissing, match="sentence splitter") as caught:
        score(["the"], ["the"], accuracy("ROUGELSUM", sentence_split=True))
    assert "-m nltk.downloader -d " in caught.value.hint


# Requirements of scoring, checked before a run


WORKSPACE = Workspace(CHECKOUT)
NOWHERE = Path("nowhere")
BENCHMARKS = [load_benchmark(name, WORKSPACE) for name in benchmark_names(WORKSPACE)]


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.name)
def test_missing_scoring_requirements_are_reported_before_the_run(benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLPERF_INFERENCE_DIR", raising=False)
    monkeypatch.setenv("PATH", "")  # no container engine
    scorer = Scorer(benchmark, {}, Assets(NOWHERE, NOWHERE, {}, NOWHERE))
    methods = set(benchmark.accuracy.scoring.values())
    if methods & {"mbxp", *ACCURACY_SCRIPTS}:
        with pytest.raises(EnvironmentMissing) as caught:
            scorer.require()
        assert caught.value.hint
    else:
        scorer.require()
