"""Edits of user.conf and of engine settings files that keep comments and layout. Pure: text in, text out."""

import json
import re
from collections.abc import Mapping

from harness_llm.errors import ConfigError
from harness_llm.fileio import parse_yaml
from harness_llm.pipeline.tuning.search_space import Value

_INDENT = "  "
# A value of one line, and its comment.
_SCALAR = r"""(?P<value>'[^']*'|"[^"]*"|[^\s#][^#\n]*?)"""
_KEY = r"(?P<head>[ \t]+{key}:[ \t]+)" + _SCALAR + r"(?P<tail>[ \t]+#.*|[ \t]*)"


def with_engine_settings(text: str, settings: Mapping[str, Value], where: str) -> str:
    """Return `text`, the content of a settings file, with `settings` by `section.key`.

    Raises:
        ConfigError: the layout of a section or value is not one of lines `key: value`.
    """
    lines = text.splitlines()
    for name, value in settings.items():
        section, _, key = name.partition(".")
        _set_key(lines, section, key, json.dumps(value))
    changed = "".join(f"{line}\n" for line in lines)
    _check_settings(text, changed, settings, where)
    return changed


def _set_key(lines: list[str], section: str, key: str, value: str) -> None:
    """Replace the value of `key`, or add the key after the last one of its section."""
    start = next((index for index, line in enumerate(lines) if re.fullmatch(rf"{section}:\s*(#.*)?", line)), None)
    if start is None:
        lines += [f"{section}:", f"{_INDENT}{key}: {value}"]
        return
    pattern = re.compile(_KEY.format(key=re.escape(key)))
    last = start
    for index in range(start + 1, len(lines)):
        if re.match(r"\S", lines[index]) and not lines[index].startswith("#"):
            break
        if match := pattern.fullmatch(lines[index]):
            lines[index] = f"{match['head']}{value}{match['tail']}"
            return
        if lines[index].strip() and not lines[index].lstrip().startswith("#"):
            last = index
    indent = re.match(r"\s*", lines[last] if last > start else _INDENT)
    lines.insert(last + 1, f"{indent[0] if indent else _INDENT}{key}: {value}")


def _check_settings(before: str, after: str, settings: Mapping[str, Value], where: str) -> None:
    """Require that only `settings` differ between the contents."""
    expected = parse_yaml(before, where) or {}
    for name, value in settings.items():
        section, _, key = name.partition(".")
        expected = expected | {section: (expected.get(section) or {}) | {key: value}}
    try:
        found = parse_yaml(after, where)
    except ConfigError:
        found = None
    twice = len(re.findall(r"^\w+:", after, re.MULTILINE)) != len(expected)
    if found != expected or twice:
        raise ConfigError(
            "the layout of the settings file cannot be edited",
            where=where,
            expected="sections with lines `key: value`",
            hint=f"edit the file by hand: {', '.join(f'{name}={json.dumps(v)}' for name, v in settings.items())}",
        )


def with_target(text: str, name: str, value: str) -> str:
    """Return `text`, the content of a user.conf, with the line `name = value`, such as llama2-70b.Server.target_qps.

    A new line follows the last one of the same model.
    """
    lines = text.splitlines()
    pattern = re.compile(rf"(\s*{re.escape(name)}\s+=\s+)\S+\s*")
    own = [index for index, line in enumerate(lines) if pattern.fullmatch(line)]
    if own:
        match = pattern.fullmatch(lines[own[-1]])
        lines[own[-1]] = f"{match[1] if match else ''}{value}"
    else:
        model = name.split(".", maxsplit=1)[0]
        of_model = [index for index, line in enumerate(lines) if line.lstrip().startswith(f"{model}.")]
        lines.insert(of_model[-1] + 1 if of_model else len(lines), f"{name} = {value}")
    return "".join(f"{line}\n" for line in lines)
