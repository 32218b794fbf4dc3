"""The parts of the source that measure and that judge: which modules count, and which changes of them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness_llm.config.servers import server_kinds
from harness_llm.runs.program_source import JUDGING, MEASURING, PACKAGE, Part

MEASURES = """
config.in_flight config.llmboost config.servers
hardware hardware.accelerators hardware.compilers hardware.gpus hardware.numa hardware.pci hardware.sysfs
loadgen loadgen.health loadgen.meter loadgen.prediction loadgen.probe loadgen.probe_pool loadgen.process
loadgen.query_log loadgen.query_table loadgen.recorder loadgen.replica_client loadgen.replica_log loadgen.run_spec
loadgen.scheduler loadgen.settings loadgen.sut
pipeline pipeline.loadgen_spec pipeline.scenario_pool
protocol protocol.child_processes protocol.counters protocol.curve protocol.guard protocol.kv_cache protocol.mailbox
protocol.messages protocol.sessions protocol.status_writer protocol.token_store
replicas replicas.heartbeat replicas.local replicas.placement replicas.pool replicas.pool_folder replicas.replay_host
replicas.replica
replicas.engines replicas.engines.completions replicas.engines.cuda replicas.engines.engine
replicas.engines.http_client replicas.engines.openai replicas.engines.replay replicas.engines.replay_timing
replicas.engines.server_metrics replicas.engines.server_process replicas.engines.transformers replicas.engines.vllm
replicas.engines.vllm_core replicas.engines.vllm_server
replicas.ray replicas.ray.assignment replicas.ray.cluster replicas.ray.connection replicas.ray.launcher
replicas.ray.node replicas.ray.relay
"""
JUDGES = """
evaluate evaluate.accuracy_file evaluate.decoding evaluate.gates evaluate.log_digests evaluate.matches
evaluate.rouge evaluate.run_result
evaluate.sandbox evaluate.score evaluate.scoring_service evaluate.sentence_splitter
evaluate.compliance evaluate.compliance.evidence evaluate.compliance.test06 evaluate.compliance.test07
evaluate.compliance.test09
evaluate.mbxp evaluate.mbxp.container evaluate.mbxp.programs evaluate.mbxp.runner
evaluate.official evaluate.official.namespaces evaluate.official.script_runner evaluate.official.scripts
loadgen loadgen.logs
pipeline pipeline.judgement
protocol protocol.kv_cache protocol.token_store
"""
SYNTAX = '''
"""A module."""
from __future__ import annotations
@decorated(1, *rest, key=None, **more)
class One(Base, metaclass=Meta):
    """A class."""
    field: dict[str, int] = {"a": 1, **other}
    async def method(self, a, /, b=-1.5, *c, d: bytes = b"x", e=..., **f) -> None:
        """A function."""
        async with opened() as file, other: await file
        return f"{a!r:>{b}} {b=} {'text'}" "more ü" f"{c:{d}{e:5}}" u""
def two():
    global x
    try: x = [y := 1, *z, (i for i in j if k), lambda q=2: q, True, 1_000j]
    except* (OSError, ValueError) as error: raise error from None
    match x:
        case {"a": 1, **rest} | [One(field=2), *_] if x: yield from x[1:2, ...]
        case _: del x.y, x[0]
'''


def modules(part: Part) -> list[str]:
    """The modules of a part, without the name of the package."""
    return sorted(name.removeprefix("harness_llm.") for name in part.modules() if name != "harness_llm")


@pytest.mark.parametrize(("part", "expected"), [(MEASURING, MEASURES), (JUDGING, JUDGES)])
def test_a_part_has_these_modules(part: Part, expected: str) -> None:
    """A new module that measures or judges is added here; one that does neither to `left_out`, with a reason."""
    assert modules(part) == sorted(expected.split())


@pytest.mark.parametrize("part", [MEASURING, JUDGING])
def test_every_entry_and_every_module_that_is_left_out_is_used(part: Part) -> None:
    assert set(part.entries) <= part.modules().keys()
    for name in part.left_out:
        rest = Part(part.entries, {other: why for other, why in part.left_out.items() if other != name})
        assert rest.modules() != part.modules(), name


def test_programs_of_servers_measure() -> None:
    words = [word for kind in server_kinds().values() for word in kind.command.split()]
    programs = {word for word in words if word.startswith("harness_llm.")}
    assert programs
    assert programs <= MEASURING.modules().keys()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package."""
    return shutil.copytree(PACKAGE, tmp_path / "harness_llm", ignore=shutil.ignore_patterns("__pycache__"))


def prepend(file: Path, text: str) -> None:
    file.write_text(f"{text}\n{file.read_text()}")


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "loadgen/sut.py").write_text(f"\n\n# other\n{(root / 'loadgen/sut.py').read_text()}"),
        lambda root: prepend(root / "loadgen/sut.py", '"""Other."""'),
        lambda root: prepend(root / "errors.py", "OTHER = 1"),
        lambda root: prepend(root / "config/benchmark.py", "OTHER = 1"),
        lambda root: prepend(root / "runs/record.py", "OTHER = 1"),
        lambda root: prepend(root / "submission/templates/src_README.md.j2", "Other."),
        lambda root: prepend(root / "analysis/report/assets/report.css", "p {}"),
        lambda root: prepend(root / "pipeline/run.py", "OTHER = 1"),
        lambda root: (root / "loadgen/new.py").touch(),
        lambda root: (root / "loadgen/.#sut.py").touch(),
    ],
    ids=["comment", "docstring", "messages", "values", "records", "template", "css", "command", "new", "editor"],
)
def test_change_without_effect_on_runs_and_verdicts(package: Path, change: Callable[[Path], object]) -> None:
    before = [part.digest(package) for part in (MEASURING, JUDGING)]
    change(package)
    assert [part.digest(package) for part in (MEASURING, JUDGING)] == before


@pytest.mark.parametrize(
    "module",
    [
        "loadgen/sut.py",
        "replicas/engines/vllm.py",  # imported in a function
        "replicas/ray/relay.py",  # named in a string
        "replicas/engines/vllm_server.py",  # named in servers.yaml
        "replicas/placement.py",
        "pipeline/loadgen_spec.py",
        "config/in_flight.py",
        "replicas/engines/__init__.py",
    ],
)
def test_changed_statement_that_measures(package: Path, module: str) -> None:
    measuring, judging = MEASURING.digest(package), JUDGING.digest(package)
    prepend(package / module, "OTHER = 1")
    assert MEASURING.digest(package) != measuring
    assert JUDGING.digest(package) == judging


@pytest.mark.parametrize(
    "module", ["loadgen/logs.py", "evaluate/gates.py", "evaluate/compliance/test06.py", "pipeline/judgement.py"]
)
def test_changed_statement_that_judges(package: Path, module: str) -> None:
    measuring, judging = MEASURING.digest(package), JUDGING.digest(package)
    prepend(package / module, "OTHER = 1")
    assert MEASURING.digest(package) == measuring
    assert JUDGING.digest(package) != judging


def test_module_that_a_function_imports_counts(package: Path) -> None:
    sut = package / "loadgen/sut.py"
    sut.write_text(f"{sut.read_text()}\n\ndef more() -> None:\n    from harness_llm.analysis import student\n")
    assert "harness_llm.analysis.student" in MEASURING.modules(package)
    assert "harness_llm.analysis" in MEASURING.modules(package)


def test_removed_and_renamed_modules_count(package: Path) -> None:
    seen = [MEASURING.digest(package)]
    shutil.move(package / "loadgen/meter.py", package / "loadgen/meters.py")
    seen.append(MEASURING.digest(package))
    prepend(package / "loadgen/sut.py", "import harness_llm.loadgen.meters")
    seen.append(MEASURING.digest(package))
    assert len(set(seen)) == len(seen)


def test_file_that_is_not_python_yet_counts_by_its_bytes(package: Path) -> None:
    seen = [MEASURING.digest(package)]
    for text in ("def", "def half(", "\0"):
        (package / "loadgen/sut.py").write_text(text)
        seen.append(MEASURING.digest(package))
    assert len(set(seen)) == len(seen)


def test_versions_of_python_agree(tmp_path: Path) -> None:
    """The digest of Python 3.11 to 3.13."""
    (tmp_path / "__init__.py").write_text(SYNTAX)
    part = Part(("harness_llm",), {})
    assert part.modules(tmp_path) == {"harness_llm": "908aa95a2b2ad0a4572d440f290d0ea2f207d0263d8596ac042d7aeb4637934e"}
