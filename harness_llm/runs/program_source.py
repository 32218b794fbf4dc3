"""Two parts of the source of harness_llm: what takes part in a measurement, and what judges finished logs.

A part is the static import closure of its entry points: modules imported anywhere in a module, also in functions, and
modules named in a string, which are started as programs. Of each module, the statements count: its syntax tree without
comments, docstrings and positions, in a form that all versions of Python share.
"""

import ast
import functools
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import harness_llm

PACKAGE = Path(harness_llm.__file__).parent

_DIGITS = 16
_MODULE = re.compile(rf"{PACKAGE.name}(\.\w+)*")
# Fields of syntax trees without an effect on the program: use of a name, prefix of a text, comments on types.
_WITHOUT_EFFECT = {"ctx", "kind", "type_comment", "type_ignores"}


class _Module(NamedTuple):
    """Digest of a module's statements, and the names in it that may be modules of the package."""

    digest: str
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """A part of the source.

    Attributes:
        entries: modules where the closure starts; they count even if `left_out` contains their package.
        left_out: modules and packages that do not count, and why.
    """

    entries: tuple[str, ...]
    left_out: Mapping[str, str]

    def modules(self, package: Path = PACKAGE) -> dict[str, str]:
        """The digest of each module of the part, by name.

        Args:
            package: folder of harness_llm.
        """
        found: dict[str, str] = {}
        waiting = list(self.entries)
        while waiting:
            name = waiting.pop()
            file = _file(package, name)
            if file and name not in found and not self._omits(name):
                module = _read(file.read_bytes())
                found[name] = module.digest
                waiting += [name.rpartition(".")[0] or PACKAGE.name, *module.names]
        return found

    def digest(self, package: Path = PACKAGE) -> str:
        """The start of the sha256 of the present modules; short, because plans and comparisons print it."""
        return hashlib.sha256(repr(sorted(self.modules(package).items())).encode()).hexdigest()[:_DIGITS]

    @functools.cached_property
    def at_start(self) -> str:
        """The digest when this process first asked for it, near its start: that of the modules that it has loaded."""
        return self.digest()

    def _omits(self, name: str) -> bool:
        return name not in self.entries and any(name == one or name.startswith(f"{one}.") for one in self.left_out)


_VALUES = "read from files and options; its values are in the fingerprint, run_facts or judged_by"
_NO_PART = {
    "harness_llm.errors": "texts and exit codes of errors",
    "harness_llm.fileio": "reading and writing files",
    "harness_llm.paths": "names of folders",
    "harness_llm.runs": "records of runs",
    "harness_llm.config": _VALUES,
}

MEASURING = Part(
    entries=(
        "harness_llm.pipeline.scenario_pool",  # cores, devices and environment of the replicas
        "harness_llm.pipeline.loadgen_spec",  # cores and settings of LoadGen's process
        "harness_llm.loadgen.process",
        "harness_llm.replicas.engines.vllm_server",  # named in servers.yaml
        # Of the configuration, what computes during a run or starts a server.
        "harness_llm.config.in_flight",
        "harness_llm.config.servers",
        "harness_llm.config.llmboost",
    ),
    left_out=_NO_PART
    | {
        "harness_llm.hardware.drivers": "checked before a run",
        "harness_llm.hardware.ecc": "recorded in nodes",
        "harness_llm.hardware.host_settings": "recorded in nodes",
        "harness_llm.hardware.machine": "recorded in the fingerprint and in nodes",
        "harness_llm.hardware.kernel_events": "causes of failures",
        "harness_llm.loadgen.logs": "finished logs; it judges",
        "harness_llm.pipeline.profiling": "profiled runs are no results",
        "harness_llm.pipeline.run_facts": "recorded in run_facts",
        "harness_llm.replicas.profile_control": "profiled runs are no results",
        "harness_llm.protocol.record_files": "files that are written after LoadGen's end",
        "harness_llm.replicas.failure_cause": "causes of failures",
        "harness_llm.replicas.start_phase": "display of the start",
        "harness_llm.replicas.start_progress": "display of the start",
        "harness_llm.replicas.ray.node_query": "recorded in the fingerprint and in nodes",
    },
)
"""LoadGen's process, the replicas, and the modules of the command's process that give them cores, devices, settings and
environment."""

JUDGING = Part(
    entries=("harness_llm.pipeline.judgement",),
    left_out=_NO_PART | {"harness_llm.loadgen.prediction": "before a run"},
)
"""Verdicts, scores and gates of finished logs."""


def _file(package: Path, module: str) -> Path | None:
    """The file of a module; None if the name is not that of a module in `package`."""
    path = package.joinpath(*module.split(".")[1:])
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


@functools.cache
def _read(source: bytes) -> _Module:
    """Read a module; the bytes of a file count that is not Python, such as one that is being written."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return _Module(hashlib.sha256(source).hexdigest(), ())
    names = tuple(sorted({name for name in _names(tree) if _MODULE.fullmatch(name)}))
    return _Module(hashlib.sha256(repr(_statements(tree)).encode()).hexdigest(), names)


def _names(tree: ast.Module) -> Iterator[str]:
    """Names that `tree` imports, and all texts in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _statements(node: object) -> object:
    """A syntax tree as tuples, without what versions of Python differ in: empty fields, empty texts in f-strings."""
    if isinstance(node, ast.JoinedStr):
        return [_statements(part) for part in node.values if not (isinstance(part, ast.Constant) and part.value == "")]
    if isinstance(node, ast.AST):
        fields = [(name, value) for name, value in ast.iter_fields(node) if name not in _WITHOUT_EFFECT]
        return (type(node).__name__, *((name, _statements(value)) for name, value in fields if value not in (None, [])))
    if isinstance(node, list):
        return [_statements(one) for one in node if not _is_docstring(one)]
    return ascii(node)


def _is_docstring(node: object) -> bool:
    """Whether a statement is a text alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
