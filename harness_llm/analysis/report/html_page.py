"""The HTML file: template, style, scripts and data in one, which loads nothing from a network."""

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from harness_llm.analysis.report import wording
from harness_llm.analysis.report.chart import Chart
from harness_llm.analysis.report.diagnosed_runs import causes_text
from harness_llm.fileio import write_atomically

_ASSETS = files("harness_llm.analysis.report") / "assets"
SCRIPTS, STYLE = ("echarts.common.min.js", "labels.js", "charts.js"), "report.css"


class ChartStore:
    """The data of the charts by number, as the template places them."""

    def __init__(self) -> None:
        self.documents: list[dict[str, Any]] = []

    def add(self, chart: Chart) -> int:
        """Keep the data of `chart`, and return its number."""
        self.documents.append(chart.document())
        return len(self.documents) - 1


def render_page(template: str, context: Mapping[str, Any]) -> str:
    """The page of `templates/<template>`; every text in it is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("harness_llm.analysis.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        number=wording.number,
        percent=wording.percent,
        margin_text=wording.margin_text,
        causes_text=causes_text,
    )
    charts = ChartStore()
    body = environment.get_template(template).render(context, charts=charts)
    scripts = [_text(script) for script in SCRIPTS] if charts.documents else []
    return environment.get_template("page.html.j2").render(
        title=context["title"],
        body=body,
        style=_text(STYLE),
        scripts=scripts,
        policy=_policy(scripts),
        data=_json(charts.documents),
    )


def write_page(file: Path, page: str) -> Path:
    """Write `page` to `file`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(file) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return file


def _text(asset: str) -> str:
    return (_ASSETS / asset).read_text(encoding="utf-8")


def _json(documents: Any) -> str:
    """JSON that cannot end its script element."""
    text = json.dumps(documents, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(scripts: list[str]) -> str:
    """Content security policy: these scripts and inline styles, and no request at all."""
    digests = " ".join(f"'sha256-{_digest(script)}'" for script in scripts) or "'none'"
    others = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {digests}; {others}"


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
