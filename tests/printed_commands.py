"""Commands in the texts of the program and its documents, and the parsers that read them."""

import ast
import functools
import re
import shlex
import subprocess
from collections.abc import Container, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from harness_llm.cli.declaration import _options
from harness_llm.cli.main import app
from harness_llm.config import commands
from harness_llm.config.aliases import translate
from harness_llm.config.options import Options, declared_options
from harness_llm.paths import CHECKOUT

GROUP: Any = typer.main.get_command(app)
COMMANDS: dict[str, Any] = GROUP.commands
VERB = "|".join(COMMANDS)
FILES = sorted(file for folder in ("harness_llm", "setup") for file in (CHECKOUT / folder).rglob("*.*"))
CODE = [file for file in FILES if file.suffix == ".py"]
OTHERS = [CHECKOUT / "Makefile", *(file for file in FILES if file.suffix in (".sh", ".j2", ".yaml"))]
FUNCTIONS = ("command", "command_line", "repeat", "typed", "name_of", "engine_setting")
"""Functions of harness_llm/config/commands.py that write commands and options."""
_OF_MESSAGES = ("hint", "where", "expected", "found")
UNKNOWN = "…"
"""A value that is known at run time only."""


def parse(verb: str, *words: str) -> dict[str, Any]:
    """Return the parameters of `harness-llm VERB WORDS`; raises an error of the command line's parser."""
    params: dict[str, Any] = COMMANDS[verb].make_context(verb, translate(words)).params
    return params


def parse_line(line: str) -> dict[str, Any]:
    """Return the parameters of a command line of harness-llm."""
    program, *words = shlex.split(line)
    assert program.rpartition("/")[2] == "harness-llm", line
    verb, *words = words[1:] if words[0] == "-v" else words
    return parse(verb, *words)


def options_of(line: str) -> Options:
    """Return the options of a command line of harness-llm."""
    params = parse_line(line)
    return _options({name: value for name, value in params.items() if name in declared_options()})


def settings_of(line: str) -> dict[str, str]:
    """The settings NAME=value of a command line."""
    return dict(word.split("=", 1) for word in shlex.split(line, comments=True) if re.match(r"[A-Z_]+=", word))


def dry_make(words: str) -> subprocess.CompletedProcess[str]:
    """Run `make --dry-run WORDS`: make reads targets and settings."""
    command = ["make", "--dry-run", *shlex.split(words)]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)


TARGETS = set(re.findall(r"^([a-z_-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
# Words after the verb "make" in sentences.
_SENTENCES = {"a", "exits", "steps", "the"}


@functools.cache
def make_error(words: str) -> str:
    """Return the error of `make WORDS`, which is not executed; empty without one."""
    done = dry_make(words)
    return done.stderr if done.returncode else ""


def targets_of(text: str) -> Iterator[str]:
    """The words after each `make` in a text: a target and settings; an unknown target is one too."""
    for target, settings in re.findall(r"(?<![\w-])make (?:-C \S+ )?([a-z][\w-]*)((?: [A-Z_]+=[\w.-]+)*)", text):
        if target not in _SENTENCES:
            yield target + settings
    yield from (f"submission {settings}" for settings in re.findall(r"(?<![\w-])make ([A-Z_]+=\S+)", text))


def scripts_of(text: str) -> Iterator[str]:
    """The shell scripts in a text, by their paths in the checkout; `…` is every possible word."""
    for path in re.findall(r"(?<![\w/])(?:setup|submission)/[\w…]+\.sh", text):
        files = [str(file.relative_to(CHECKOUT)) for file in CHECKOUT.glob(path.replace(UNKNOWN, "*"))]
        yield from files or [path]


@dataclass(frozen=True)
class Text:
    """A string of a source file; `…` is each value of an f-string."""

    place: str
    text: str


def lines(file: Path) -> Iterator[Text]:
    """The lines of a file without comments."""
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if not line.lstrip().startswith("#"):
            yield Text(f"{file.relative_to(CHECKOUT)}:{number}", line)


def messages(file: Path) -> Iterator[Text]:
    """The strings of a module, without docstrings, and without single words, which are parts of argument lists."""
    tree = ast.parse(file.read_text())
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    named = {id(word.value) for word in ast.walk(tree) if isinstance(word, ast.keyword) and word.arg in _OF_MESSAGES}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values if isinstance(part, ast.Constant)}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else UNKNOWN for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            text = node.value
        else:
            continue
        if " " in text or id(node) in named:
            yield Text(f"{file.relative_to(CHECKOUT)}:{node.lineno}", text)


@dataclass(frozen=True)
class Call:
    """A call of one of FUNCTIONS, with the values that are known before it runs, else UNKNOWN."""

    place: str
    function: str
    words: tuple[Any, ...]
    options: dict[str, Any]

    def write(self, **more: Any) -> str:
        """The text that the function writes."""
        text: str = getattr(commands, self.function)(*self.words, **self.options, **more)
        return text


def calls(file: Path) -> Iterator[Call]:
    """The calls of FUNCTIONS in a module that imports them."""
    tree = ast.parse(file.read_text())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == commands.__name__
        for alias in node.names
    } & set(FUNCTIONS)
    if not imported:
        return
    module = import_module(".".join(file.relative_to(CHECKOUT).with_suffix("").parts))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in imported:
            yield Call(
                f"{file.relative_to(CHECKOUT)}:{node.lineno}",
                node.func.id,
                tuple(_value(word, module) for word in node.args if not isinstance(word, ast.Starred)),
                {keyword.arg: _value(keyword.value, module) for keyword in node.keywords if keyword.arg},
            )


def _value(node: ast.expr, module: Any) -> Any:
    """The value of a literal or of a constant of the module."""
    if isinstance(node, ast.Constant):
        return node.value
    return getattr(module, node.id, UNKNOWN) if isinstance(node, ast.Name) else UNKNOWN


# Documents


def commands_of(page: str) -> Iterator[list[str]]:
    """The words of each command in a page: of lines of code, and of `code` in sentences."""
    page = re.sub(r"^```.*$", "", page, flags=re.MULTILINE)
    for found in re.findall(r"^ {4,}(\S.*)$|`([^`\n]+)`", page, re.MULTILINE):
        line = "".join(found)
        if "[OPTIONS]" in line:  # generated from the parsers
            continue
        # Placeholders such as <time> are words; remarks follow two spaces; [OPTIONAL] words are left out.
        text = re.sub(r"<(\w+)>", r"\1", line).partition("  ")[0].partition("[")[0].replace("COMMAND", "runs")
        try:
            yield from _simple_commands(text)
        except ValueError:  # code of another language
            continue


def _simple_commands(text: str) -> Iterator[list[str]]:
    """The words of each program of a shell command, without operators, assignments and unknown words."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;<>()"):
            if words:
                yield words
            words = []
        elif (words or not re.match(r"[A-Z_]+=", word)) and UNKNOWN not in word:
            words.append(word)


def command_error(words: list[str]) -> str:
    """Return what is wrong with a command of make, harness-llm or a script of the checkout; empty for others."""
    program, *rest = words[1:] if words[0] in ("bash", "sh") and len(words) > 1 else words
    if program.endswith(".sh"):
        return (command_error(rest) if rest else "") if (CHECKOUT / program).is_file() else f"no script {program}"
    if program == "make":
        return _name_error(rest, TARGETS) if len(rest) < 2 else make_error(shlex.join(rest))
    if program.rpartition("/")[2] == "harness-llm":
        return _name_error(rest, COMMANDS) if len({*rest} - {"-v", "--help"}) < 2 else _parse_error(words)
    return command_error(words[words.index("harness-llm") :]) if "harness-llm" in words[1:] else ""


def _name_error(words: list[str], known: Container[str]) -> str:
    return "".join(f"unknown {word}" for word in words if word not in known and word not in ("-v", "--help"))


def _parse_error(words: list[str]) -> str:
    try:
        parse_line(shlex.join(words))
    except Exception as error:  # noqa: BLE001 - the errors of the parser have no public class
        return f"{shlex.join(words)}: {error!r}"
    return ""
