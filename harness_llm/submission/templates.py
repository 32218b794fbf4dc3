"""Jinja templates of the documents."""

from typing import Any

import jinja2

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("harness_llm.submission"),
    autoescape=jinja2.select_autoescape(),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def render(template: str, **context: Any) -> str:
    """Render `templates/<template>`."""
    return _TEMPLATES.get_template(template).render(context)
