"""Generate the reference tables of docs/*.md from the command line, the models of the YAML files and the Makefile.

python -m docs.references     writes the tables between `<!-- generated: NAME -->` and `<!-- /generated -->`
"""

import ast
import enum
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
import yaml
from typer.core import TyperArgument, TyperGroup, TyperOption

from docs.tables import attributes, sections, table, yaml_text
from harness_llm.analysis.diagnosis import thresholds
from harness_llm.cli.main import app
from harness_llm.config.architecture import Equipment, Link, Nic, Node
from harness_llm.config.benchmark import Accuracy, Benchmark, Checkpoint, Dataset, Download, SampleSet, Sampling
from harness_llm.config.engine_config import FIXED, REFUSED, HarnessConfig, ReplayConfig, ServerConfig
from harness_llm.config.profile import Profile
from harness_llm.config.rules import load_round, round_names
from harness_llm.config.user_conf import KEYS
from harness_llm.protocol.record_files import FILES
from harness_llm.runs.inherited_environment import FAMILIES

CHECKOUT = Path(__file__).resolve().parent.parent
PAGES = ("architecture.md", "commands.md", "configuration.md", "records.md")
_BLOCK = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- /generated -->)", re.DOTALL)


def _load(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((CHECKOUT / "models" / name).read_text()))


def _commands() -> dict[str, Any]:
    group = typer.main.get_command(app)
    found = group.commands if isinstance(group, TyperGroup) else {}
    return {name: command for name, command in found.items() if not command.hidden}


def _options(command: Any) -> list[TyperOption]:
    return [p for p in command.params if isinstance(p, TyperOption) and not p.hidden]


def _name(option: TyperOption) -> str:
    annotation = option.type_descriptor.annotation
    value = " N" if annotation is int else " PATH" if annotation is Path else " VALUE"
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        value = f" {'|'.join(member.value for member in annotation)}"
    return ", ".join(f"`{name}{'' if option.is_flag else value}`" for name in (*option.opts, *option.secondary_opts))


def _help(option: TyperOption) -> str:
    variable = f" (`{option.envvar}`)" if option.envvar else ""
    return f"{option.help or ''}{variable}"


def commands() -> str:
    """Return a section per command; options by the groups of `--help`."""
    text = ""
    for name, command in _commands().items():
        arguments = [p for p in command.params if isinstance(p, TyperArgument)]
        usage = " ".join((f"harness-llm {name}", *((a.name or "").upper() for a in arguments)))
        text += f"### {name}\n\n    {usage} [OPTIONS]\n\n{' '.join((command.help or '').split())}\n\n"
        text += "".join(f"- `{(a.name or '').upper()}`: {a.help}\n" for a in arguments) + "\n" * bool(arguments)
        groups: dict[str, list[tuple[str, str]]] = {}
        for option in _options(command):
            groups.setdefault(option.rich_help_panel or "option", []).append((_name(option), _help(option)))
        text += "".join(f"{table([group, 'meaning'], rows)}\n" for group, rows in groups.items())
    return text


def layers() -> str:
    """Return the packages from top to bottom, as import-linter holds them, with the first lines of their docstrings."""
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"]
    lines = next(contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers")
    rows = [
        (str(layer), f"`{name}`", _docstring(name)) for layer, line in enumerate(lines, 1) for name in line.split(" | ")
    ]
    return table(["layer", "package", "contents"], rows)


def _docstring(name: str) -> str:
    """Return the first line of the docstring of a package or module of harness_llm."""
    package = CHECKOUT / "harness_llm" / name / "__init__.py"
    source = package if package.is_file() else CHECKOUT / "harness_llm" / f"{name}.py"
    return (ast.get_docstring(ast.parse(source.read_text())) or "").partition("\n")[0]


def targets() -> str:
    """Return the table of make targets."""
    found = re.findall(r"^([a-z_-]+):[^#\n]*## (.+)$", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    return table(["target", "what it does"], [(f"`make {name}`", text) for name, text in found])


def make_variables() -> str:
    """Return the table of the Makefile's variables that are options of `harness-llm submit`."""
    helps = {name: _help(option) for option in _options(_commands()["submit"]) for name in option.opts}
    declared = re.search(r"^OPTIONS := ((?:.*\\\n)*.*)$", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    pairs = [pair.split(":") for pair in declared[1].replace("\\\n", " ").split()] if declared else []
    rows = [(f"`{variable}`", f"`--{option}`", helps[f"--{option}"]) for variable, option in pairs]
    return table(["variable", "option", "meaning"], rows)


def engine_variables() -> str:
    """Return the table of the environment variables that are part of the fingerprint."""
    rows = [(software, ", ".join(f"`{prefix}`" for prefix in prefixes)) for software, prefixes in FAMILIES.items()]
    return table(["read by", "names begin with"], rows)


def engine_settings() -> str:
    """Return a table per section of an engine settings file, with the values of models/defaults.yaml."""
    models = {"harness_config": HarnessConfig, "server_config": ServerConfig, "replay_config": ReplayConfig}
    return sections(models, _load("defaults.yaml"))


def engine_arguments() -> str:
    """Return the vLLM arguments that a submitter cannot set."""
    names = dict.fromkeys((*FIXED, *REFUSED))
    rows = [(f"`{n}`", yaml_text(FIXED[n]) if n in FIXED else "", REFUSED.get(n, "")) for n in names]
    return table(["argument", "fixed value", "reason"], rows)


def records() -> str:
    """Return a section per record file of a run."""
    text = ""
    for file in FILES:
        rows = [(f"`{column.name}`", column.unit, column.meaning) for column in file.columns]
        text += f"## {file.name}\n\nA row is {file.row}.\n\n{table(['column', 'unit', 'meaning'], rows)}\n"
    return text


def diagnosis_thresholds() -> str:
    """Return the table of the thresholds of `harness-llm diagnose`."""
    found = {name: value for name, value in vars(thresholds).items() if isinstance(value, thresholds.Threshold)}
    rows = [(f"`{name}`", f"{value.value:g}", value.reason) for name, value in found.items()]
    return table(["threshold", "value", "reason"], rows)


def user_conf() -> str:
    """Return the table of user.conf keys."""
    rows = []
    for name in dict.fromkeys(name for own in KEYS.values() for name in own):
        readers = {scenario: own[name] for scenario, own in KEYS.items() if name in own}
        kinds = " or ".join(dict.fromkeys(str(key.kind) for key in readers.values()))
        open_only = "open" if any(key.open_only for key in readers.values()) else ""
        rows.append((f"`{name}`", "all" if len(readers) == len(KEYS) else ", ".join(readers), kinds, open_only))
    return table(["key", "scenarios", "value", "division"], rows)


def profiles() -> str:
    """Return the table of models/profiles.yaml: a row per key, a column per profile."""
    content, described = _load("profiles.yaml"), attributes(Profile)
    keys = [key for key in Profile.model_fields if key != "name"]
    rows = [
        (f"`{k}`", *(yaml_text(own[k]) if k in own else "" for own in content.values()), described.get(k, ""))
        for k in keys
    ]
    return table(["key", *content, "meaning"], rows)


def benchmark() -> str:
    """Return a table per model of benchmark.yaml."""
    models = (Benchmark, Sampling, Dataset, SampleSet, Checkpoint, Download, Accuracy)
    return sections({model.__name__: model for model in models})


def system() -> str:
    """Return the fields of a system description in the newest round."""
    rules = load_round(round_names()[-1]).system
    groups = {
        "required, not empty": rules.filled,
        "required, may be empty": rules.present,
        "network, all if `is_network` is set": rules.network,
        "cloud": rules.cloud,
        "measured power": (*rules.power, rules.power_capacity),
        "values of `status`": rules.statuses,
        "values of `system_type`": rules.types,
        "integers": rules.integers,
    }
    return table(["fields", ""], [(name, ", ".join(f"`{word}`" for word in words)) for name, words in groups.items()])


def architecture() -> str:
    """Return a table per list of the section `architecture` of a system file."""
    return sections({"nodes": Node, "nics": Nic, "data_path": Link, "equipment": Equipment})


_FUNCTIONS = (
    layers,
    commands,
    targets,
    make_variables,
    engine_variables,
    engine_settings,
    engine_arguments,
    user_conf,
    profiles,
    benchmark,
    records,
    diagnosis_thresholds,
)
BLOCKS: dict[str, Callable[[], str]] = {f.__name__.replace("_", "-"): f for f in (*_FUNCTIONS, system, architecture)}


def generated(text: str) -> str:
    """Return a page with its generated blocks up to date."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{BLOCKS[block[2]]().strip()}\n\n{block[3]}", text)


def main() -> None:
    """Write the tables of all pages."""
    for page in (CHECKOUT / "docs" / name for name in PAGES):
        page.write_text(generated(page.read_text()))


if __name__ == "__main__":
    main()
