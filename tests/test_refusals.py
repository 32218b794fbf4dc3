"""Wrong options and files are refused before any process starts, with a hint."""

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from command_line import CommandLine
from workspaces import SUBMIT, append, edit, make_workspace

pytestmark = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")


class Wrong(NamedTuple):
    """What a user does, and the lines of the error."""

    name: str
    error: tuple[str, ...]
    words: tuple[str, ...] = ()
    lines: str = ""
    settings: tuple[str, str, object] | None = None
    facts: tuple[str, str, object] | None = None


CONF = "code/user_cpu.conf"
OFFLINE = "models/toy/offline_cpu.yaml"
NOT_IN_CLOSED = "closed does not allow these changes"
CASES = [
    Wrong(
        "min_duration lowered",
        (
            "min_duration is shorter than the round requires",
            f"where: {{root}}/{CONF}: Server.min_duration",
            "expected: at least 600000 ms",
            "found: 60000 ms",
            "hint: delete the line, or use --profile smoke",
        ),
        lines="llama2-70b.Server.min_duration = 60000\n",
    ),
    Wrong(
        "user.conf without spaces",
        (
            "LoadGen ignores or misreads this line",
            f"where: {{root}}/{CONF}:13",
            "expected: spaces around the =",
            "found: *.Server.min_query_count=100",
            "hint: write: *.Server.min_query_count = 100",
        ),
        lines="*.Server.min_query_count=100\n",
    ),
    Wrong(
        "a key for another model",
        (
            "unknown model llama2-7b",
            f"where: {{root}}/{CONF}:13",
            "llama2-70b, llama2-70b-interactive",
            "found: llama2-7b",
            "hint: the nearest model is llama2-70b",
        ),
        lines="llama2-7b.Server.target_qps = 100\n",
    ),
    Wrong(
        "seeds in user.conf",
        (
            "qsl_rng_seed cannot be set in user.conf",
            f"where: {{root}}/{CONF}:13",
            "expected: LoadGen reads it only from its embedded mlperf.conf",
            "hint: delete the line",
        ),
        lines="*.*.qsl_rng_seed = 1\n",
    ),
    Wrong(
        "a limit relaxed",
        ("user.conf sets keys that only open allows", f"where: {{root}}/{CONF}", "llama2-70b.Server.ttft_latency"),
        lines="*.Server.ttft_latency = 9000\n",
    ),
    Wrong(
        "samples in user.conf",
        (NOT_IN_CLOSED, "found: user.conf: performance_sample_count_override is 100, not 24576", "--division open"),
        lines="*.*.performance_sample_count_override = 100\n",
    ),
    Wrong(
        "equal issue off",
        (NOT_IN_CLOSED, "found: user.conf: sample_concatenate_permutation is 0, not 1"),
        lines="*.Server.sample_concatenate_permutation = 0\n",
    ),
    Wrong(
        "no target",
        (
            "user.conf has no target for this scenario",
            "mine.conf: llama2-70b.Offline.target_qps",
            "hint: write: llama2-70b.Offline.target_qps = NUMBER",
        ),
        words=("--user-conf", "{root}/mine.conf"),
    ),
    Wrong(
        "samples on the command line",
        (
            NOT_IN_CLOSED,
            "expected: the benchmark's own sampling, sample count and lengths",
            "found: 100 samples, the benchmark requires 24576",
            "hint: undo the changes, or use --division open",
        ),
        words=("--total-sample-count", "100"),
    ),
    Wrong(
        "max_tokens on the command line",
        (NOT_IN_CLOSED, "found: sampling.max_tokens is 16, the benchmark requires 1024", "--division open"),
        words=("--set", "sampling.max_tokens=16"),
    ),
    Wrong(
        "max_tokens in the scenario's file",
        (NOT_IN_CLOSED, "found: sampling.max_tokens is 16, the benchmark requires 1024"),
        settings=("sampling", "max_tokens", 16),
    ),
    Wrong(
        "max_tokens in the benchmark's file",
        (NOT_IN_CLOSED, "found: benchmark.yaml: sampling.max_tokens is 16, the round requires 1024"),
        facts=("sampling", "max_tokens", 16),
    ),
    Wrong(
        "samples in the benchmark's file",
        (NOT_IN_CLOSED, "found: benchmark.yaml: dataset: samples is 100, the round requires 24576"),
        facts=("dataset", "sets", {"evaluation": {"file": "demo/evaluation.store", "samples": 100}}),
    ),
    Wrong(
        "answers cut",
        (NOT_IN_CLOSED, "found: max_model_len 512 cuts answers: longest prompt and answer are 1120"),
        settings=("llm_config", "max_model_len", 512),
    ),
    Wrong(
        "prefix caching",
        (
            "prefix caching is not allowed: every input query must be computed in its entirety",
            f"where: {{root}}/{OFFLINE}: llm_config.enable_prefix_caching",
            "expected: false (inference_rules.adoc, LLM rules)",
            "found: True",
            "hint: delete the line; it is off",
        ),
        settings=("llm_config", "enable_prefix_caching", True),
    ),
    Wrong(
        "prefix caching on the command line",
        ("prefix caching is not allowed", "where: --set llm_config.enable_prefix_caching=true: "),
        words=("--set", "llm_config.enable_prefix_caching=true"),
    ),
    Wrong(
        "speculative decoding",
        (
            "this engine argument is fixed",
            f"where: {{root}}/{OFFLINE}: llm_config.speculative_config",
            "expected: harness_config.speculative_decoding enables speculative decoding where the rules allow it",
            "(inference_rules.adoc, appendix Speculative Decoding)",
        ),
        settings=("llm_config", "speculative_config", {"num_speculative_tokens": 3}),
    ),
    Wrong(
        "speculative decoding by another argument",
        ("this engine argument is fixed", "where: --set llm_config.spec_method=ngram: llm_config.spec_method"),
        words=("--set", "llm_config.spec_method=ngram"),
    ),
    Wrong(
        "speculative decoding where the rules do not allow it",
        (
            "the rules do not allow speculative decoding here",
            "where: harness_config.speculative_decoding",
            "expected: no scenario of this benchmark in this round (inference_rules.adoc, appendix",
            "found: Offline",
        ),
        words=("--set", "harness_config.speculative_decoding=Offline"),
    ),
    Wrong(
        "an argument that vLLM does not have",
        (
            "this vLLM has no such engine argument",
            f"where: {{root}}/{OFFLINE}: llm_config.max_num_batched_token",
            "found: max_num_batched_token",
            "hint: the nearest valid one is max_num_batched_tokens",
        ),
        settings=("llm_config", "max_num_batched_token", 4096),
    ),
    Wrong(
        "an unknown key",
        (
            "a setting is unknown",
            f"where: {{root}}/{OFFLINE}: harness_config.warmup_tokens",
            "found: 5",
            "hint: the nearest valid one is warm_up_tokens",
        ),
        settings=("harness_config", "warmup_tokens", 5),
    ),
    Wrong(
        "an unknown fact",
        ("a benchmark file is wrong", "where: {root}/models/toy/benchmark.yaml", "dataset.sampels"),
        facts=("dataset", "sampels", 5),
    ),
    Wrong(
        "smoke in closed",
        (
            "the closed division does not allow toy with the profile smoke",
            "expected: open",
            "found: closed; its runs are short",
            "600 s",
            "hint: --profile valid for a result; --division open, or --stand-in, to try it",
        ),
        words=("--profile", "smoke"),
    ),
    Wrong(
        "the demo in closed",
        ("the closed division does not allow demo with the profile valid", "expected: open", "hint: --division open"),
        words=("--model", "demo"),
    ),
]


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    make_workspace(tmp_path)
    (tmp_path / "mine.conf").write_text("*.Server.target_qps = 5\n")
    return CommandLine(monkeypatch, capsys)


@pytest.mark.parametrize("wrong", CASES, ids=lambda wrong: wrong.name)
def test_wrong_option_or_file_is_refused_with_a_hint(harness: CommandLine, tmp_path: Path, wrong: Wrong) -> None:
    append(tmp_path / CONF, wrong.lines)
    for file, change in (("offline_cpu.yaml", wrong.settings), ("benchmark.yaml", wrong.facts)):
        if change:
            section, key, value = change
            edit(
                tmp_path / "models" / "toy" / file,
                lambda content, s=section, k=key, v=value: content.setdefault(s, {}).update({k: v}),
            )
    done = harness(*SUBMIT, *(word.format(root=tmp_path) for word in wrong.words))
    assert done.code == 2
    assert done.err.startswith(f"error: {wrong.error[0]}")
    for line in wrong.error:
        assert line.replace("{root}", str(tmp_path)) in done.err
    assert not (tmp_path / "build" / "logs").exists()


def test_unchanged_command_prints_a_plan(harness: CommandLine) -> None:
    done = harness(*SUBMIT)
    assert done.code == 0
    assert "417792 samples" in done.err
