"""LLMBoost without its wheel, and with a wheel whose server has the shape that MangoBoost documents.

github.com/MangoBoost/docs: `llmboost serve --model_path PATH --port N --dp N`, an OpenAI endpoint below /v1. Nothing is
documented of token ids, health or metrics: this stand-in gives ids, and neither of the others.
"""

import json
import select
import zipfile
from pathlib import Path
from typing import Any

import pytest
from token_server import answer_to

pytest.importorskip("aiohttp")

from harness_llm.config.benchmark import Sampling
from harness_llm.config.llmboost import find_wheel
from harness_llm.errors import EnvironmentMissing
from harness_llm.protocol.counters import caching_violations, growth
from harness_llm.replicas.engines.engine import ServerSpec, build_engine

PROGRAM = f"""
import argparse, asyncio, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from token_server import TokenServer, serve

def main():
    parser = argparse.ArgumentParser(prog="llmboost")
    command = parser.add_subparsers(required=True).add_parser("serve")
    command.add_argument("--model_path", required=True)
    command.add_argument("--host")
    for name in ("--port", "--tp", "--dp"):
        command.add_argument(name, type=int, required=True)
    asyncio.run(serve(TokenServer(metrics=False), parser.parse_args().port))
"""


@pytest.fixture(autouse=True)
def no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMBOOST_WHEEL", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 512}))
    return tmp_path


def write_wheel(folder: Path, scripts: str) -> Path:
    wheel = folder / "llmboost-0.0.1+py3.12-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llmboost/__init__.py", "")
        archive.writestr("llmboost/cli.py", PROGRAM)
        archive.writestr("llmboost-0.0.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: llmboost\nVersion: 0.0.1\n")
        archive.writestr("llmboost-0.0.1.dist-info/entry_points.txt", f"[console_scripts]\n{scripts}\n")
    return wheel


def build(checkpoint: Path) -> Any:
    spec = ServerSpec(
        kind="llmboost", url="", command="", connections=8, attempts=2, timeout_s=10, log=str(checkpoint / "log")
    )
    return build_engine("llmboost", str(checkpoint), {"tensor_parallel_size": 1}, spec)


def test_without_a_wheel_it_says_what_it_needs(checkpoint: Path) -> None:
    with pytest.raises(EnvironmentMissing) as raised:
        build(checkpoint)
    assert raised.value.where == "LLMBOOST_WHEEL"
    assert "wheel" in raised.value.expected


def test_a_wheel_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMBOOST_WHEEL", "/nowhere/llmboost.whl")
    with pytest.raises(EnvironmentMissing) as raised:
        find_wheel()
    assert raised.value.found == "/nowhere/llmboost.whl"


def test_a_wheel_without_the_program(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMBOOST_WHEEL", str(write_wheel(checkpoint, "other = llmboost.cli:main")))
    with pytest.raises(EnvironmentMissing, match="no program llmboost"):
        build(checkpoint)


def test_a_wheel_of_the_documented_shape_serves(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMBOOST_WHEEL", str(write_wheel(checkpoint, "llmboost = llmboost.cli:main")))
    engine = build(checkpoint)
    try:
        engine.configure(Sampling(temperature=0, min_tokens=1, max_tokens=48, stop_token_ids=(2,)), stream=True)
        before = engine.counters()
        engine.add(1, [5, 6])
        found: list[tuple[int, list[int]]] = []
        while engine.busy:
            assert select.select([engine.arrivals], [], [], 10)[0]
            found += engine.step().finished
        assert found == [(1, answer_to([5, 6], {"stop_token_ids": [2], "max_tokens": 48})[0])]
        assert "no cache hits" in caching_violations(growth([(before, engine.counters())]))[0]
    finally:
        engine.close()
