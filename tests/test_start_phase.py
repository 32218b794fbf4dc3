"""Phases of a starting engine, read from log texts of real engines."""

import importlib.util
import re
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_llm.replicas.start_phase import INITIALIZING, READY, WARM_UP, LogTail, Phase, phase_names, phase_of
from harness_llm.replicas.start_progress import ProcessStart, StartStatus

STARTS = Path(__file__).parent / "data" / "starts"
LOADING, ALLOCATING, COMPILING, TUNING, CAPTURING = phase_names()[1:-2]


def read_phases(log: str) -> list[str]:
    found = [str(phase) for line in LogTail(STARTS / log).lines() if (phase := phase_of(line))]
    return [text for text, _ in groupby(found)]


def test_phases_of_vllm_on_gpus() -> None:
    assert read_phases("vllm_0.30_cuda.txt") == [
        LOADING,
        *(f"{LOADING} {done}%" for done in (0, 7, 53, 100)),
        ALLOCATING,
        COMPILING,
        ALLOCATING,
        TUNING,
        *(f"{CAPTURING} {done}%" for done in (0, 45, 100)),
        CAPTURING,
    ]


def test_phases_of_vllm_on_a_cpu() -> None:
    assert read_phases("vllm_0.30_cpu.txt") == [LOADING, f"{LOADING} 0%", f"{LOADING} 100%", ALLOCATING]


def test_phases_of_other_servers() -> None:
    assert read_phases("sglang.txt") == [LOADING, f"{LOADING} 50%", ALLOCATING, CAPTURING, f"{CAPTURING} 33%"]
    assert read_phases("trtllm.txt") == [LOADING, f"{LOADING} 40%", TUNING, CAPTURING]


def test_progress_of_kernels_that_vllm_compiles() -> None:
    for kernels in ("DeepGEMM warmup", "JIT kernel warmup (3 compile keys)", "Compiling CuTeDSL kernels"):
        assert phase_of(f"{kernels}:  45%|####5     | 9/20 [00:41<00:50]") == Phase(TUNING, 0.45)


def vllm_source() -> str:
    vllm = importlib.util.find_spec("vllm")
    if vllm is None or vllm.origin is None:
        pytest.skip("vLLM is not installed")
    root = Path(vllm.origin).parent
    parts = ("v1/worker", "v1/engine/core.py", "v1/core/kv_cache_utils.py", "compilation", "model_executor")
    files = [
        file for part in parts for file in ([root / part] if (root / part).is_file() else (root / part).rglob("*.py"))
    ]
    text = "".join(file.read_text() for file in files if "models" not in file.parts)
    return re.sub(r'"\s*\n\s*f?"', "", text)  # joins the parts of a message


def test_installed_vllm_writes_a_line_for_each_phase() -> None:
    """A version with other messages needs new lines in start_phases.yaml."""
    source = vllm_source()
    messages = set(re.findall(r'(?:info|info_once|desc=|desc = |= f?)\(?\s*"([^"\n]{8,})"', source))
    messages |= set(re.findall(r'"((?:Capturing|Loading)[^"\n]*)"', source))
    found = {phase.name for message in messages if (phase := phase_of(f"{message} 1%"))}
    assert found == set(phase_names()[1:-2])


@given(st.text())
def test_unknown_lines_are_ignored(text: str) -> None:
    phase = phase_of(text)
    assert phase is None or phase.name in phase_names()


# Logs that grow


def test_log_tail_returns_whole_lines_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = LogTail(log)
    assert tail.lines() == []
    log.write_bytes(b"one\r 45%\rtw")
    assert tail.lines() == ["one", " 45%"]
    with log.open("ab") as file:
        file.write(b"o\nthr\xff")
    assert tail.lines() == ["two"]
    log.write_bytes(b"new\n")
    assert tail.lines() == ["new"]


def test_earlier_starts_are_skipped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Graph capturing finished in 4 secs\n")
    start = ProcessStart([LogTail(log)])
    start.begin(0.0)
    start.read(1.0)
    assert start.phase == Phase(INITIALIZING)


def test_seconds_of_each_phase(tmp_path: Path) -> None:
    log = tmp_path / "log"
    start = ProcessStart([LogTail(log)])
    start.begin(10.0)
    for text, now in (("Starting to load model\n", 13.0), ("Model loading took\n", 43.0)):
        with log.open("a") as file:
            file.write(text)
        start.read(now)
    with log.open("a") as file:
        file.write("Using cache directory: /c for vLLM's torch.compile\n")
    start.take({"event": "loaded"}, 50.0)  # also a line that was not read yet
    start.take({"event": "warm_up", "done": 0.5}, 51.0)
    assert start.phase == Phase(WARM_UP, 0.5)
    start.take({"event": "ready"}, 55.0)
    assert start.seconds == {INITIALIZING: 3, LOADING: 30, ALLOCATING: 7, COMPILING: 0, WARM_UP: 5}


def test_engine_lines_after_the_start_have_no_effect(tmp_path: Path) -> None:
    log = tmp_path / "log"
    start = ProcessStart([LogTail(log)])
    start.begin(0.0)
    start.take({"event": "loaded"}, 1.0)
    log.write_text("Running FlashInfer autotune with 8192 tokens\n")
    start.read(2.0)
    assert start.phase == Phase(WARM_UP)


# All replicas of a pool


def many(*groups: tuple[int, Phase]) -> StartStatus:
    phases = [phase for count, phase in groups for _ in range(count)]
    return StartStatus({f"replica-{index}": phase for index, phase in enumerate(phases)})


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (many((1, Phase(LOADING, 0.5))), "loading weights 50%"),
        (
            many((6, Phase(READY)), (1, Phase(CAPTURING, 0.45)), (1, Phase(CAPTURING, 0.9))),
            "6 of 8 ready; 2 capturing graphs 45%",
        ),
        (
            many((40, Phase(READY)), (2, Phase(WARM_UP, 0.2)), (29, Phase(COMPILING)), (1, Phase(INITIALIZING))),
            "40 of 72 ready; 2 warm-up 20%, 29 compiling, 1 initializing",
        ),
        (many((8, Phase(READY))), "8 of 8 ready"),
    ],
)
def test_phases_of_all_replicas_in_one_line(status: StartStatus, text: str) -> None:
    assert status.text == text
