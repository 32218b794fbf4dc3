"""The reports in a real Chromium: what a user sees, and what the page must not do."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import write_recorded_run
from runs import write_run
from tuning_sessions import SESSION, trial

from harness_llm.analysis.report.html_page import write_page
from harness_llm.analysis.report.report_page import report_page
from harness_llm.paths import Workspace
from harness_llm.runs.record import State
from harness_llm.runs.trial_store import open_session

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
HOSTILE = "<b id=injected onclick=fail()>&"
PAPER = 700  # pixels between the margins of A4
DRAWN = """() => [...document.querySelectorAll(".chart")].map((chart) =>
    [...chart.querySelectorAll("svg path")].filter((path) => path.getBBox().width > 20).length)"""

pytestmark = [
    pytest.mark.processes(seconds=40),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
]


@dataclass
class View:
    """A page and what it did while it was shown."""

    page: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def show(browser: Any, file: Path, **settings: Any) -> View:
    view = View(browser.new_page(**settings))
    view.page.on("console", lambda message: view.messages.append(message.text))
    view.page.on("pageerror", lambda error: view.messages.append(str(error)))
    view.page.on("request", lambda request: view.requests.append(request.url))
    view.page.goto(file.as_uri())
    return view


def write(folder: Path, target: Path) -> Path:
    return write_page(folder / "report.html", report_page([target], Workspace(folder)).html)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two Server runs and an Offline run of 8 replicas, with hostile names."""
    folder = tmp_path_factory.mktemp("runs")
    logs = folder / "build" / "logs"
    write_recorded_run(logs, seconds=400, queries=3000, replicas=8, command=HOSTILE, division=HOSTILE)
    write_recorded_run(logs, hour=1, reasons=[HOSTILE], state=State.INVALID)
    write_recorded_run(logs, "Offline", hour=2)
    write_run(logs, "Offline", "accuracy", hour=2, metrics={"ROUGE1": 41.0})
    return write(folder, logs)


@pytest.fixture(scope="module")
def tuning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuning")
    store = open_session(folder, SESSION)
    facts = {"kind": "probe", "reason": HOSTILE, "settings": {HOSTILE: HOSTILE}}
    for number, margin in enumerate((0.5, -0.5, 0.1)):
        state = "VALID" if margin > 0 else "INVALID"
        store.append(trial(number, **facts, state=state, target_qps=50.0 + number, ttft_margin=margin, tpot_margin=0.3))
    store.append(trial(3, settings={HOSTILE: 1}))
    return write(folder, store.folder)


@pytest.mark.parametrize("kind", ["report", "tuning"])
def test_every_chart_is_drawn_without_errors_and_requests(
    browser: Any, kind: str, request: pytest.FixtureRequest
) -> None:
    file = request.getfixturevalue(kind)
    view = show(browser, file)
    drawn = view.page.evaluate(DRAWN)
    assert len(drawn) >= (20 if kind == "report" else 2)
    assert all(drawn), drawn
    assert view.messages == []
    assert view.requests == [file.as_uri(), "data:,"][: len(view.requests)]


@pytest.mark.parametrize("kind", ["report", "tuning"])
def test_texts_of_the_user_add_no_elements(browser: Any, kind: str, request: pytest.FixtureRequest) -> None:
    page = show(browser, request.getfixturevalue(kind)).page
    for summary in page.query_selector_all("summary"):
        summary.click()
    assert page.query_selector_all("#injected, b") == []
    assert HOSTILE in page.inner_text("main")


def test_pointer_and_keyboard_show_the_values(browser: Any, report: Path) -> None:
    view = show(browser, report)
    chart = view.page.locator(".chart").first
    chart.focus()
    for _ in range(3):
        view.page.keyboard.press("ArrowRight")
    assert "tokens/s" in view.page.locator("output").first.text_content()
    assert "tokens/s" in view.page.locator(".tip").first.text_content()
    assert view.messages == []


def test_values_of_a_chart_are_a_table(browser: Any, report: Path) -> None:
    page = show(browser, report).page
    page.locator("details.values summary").first.click()
    head = page.locator("details.values table").first.locator("th[scope=col]").all_text_contents()
    assert head[0].startswith("time since")
    assert page.locator("details.values table").first.locator("tbody tr").count() > 100


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_dark(browser: Any, report: Path, scheme: str) -> None:
    page = show(browser, report, color_scheme=scheme).page
    texts = ["body", ".muted", ".badge", "figcaption", ".chart svg text", "a", "th"]
    for selector in texts:
        assert contrast(page, selector) >= 4.5, selector


def contrast(page: Any, selector: str) -> float:
    """WCAG's contrast of the text's colour and the nearest background."""
    colours = page.evaluate(
        """(selector) => {
            const element = document.querySelector(selector);
            const style = getComputedStyle(element);
            let parent = element, page = "rgba(0, 0, 0, 0)";
            while (parent && page === "rgba(0, 0, 0, 0)") {
                page = getComputedStyle(parent).backgroundColor;
                parent = parent.parentElement;
            }
            const text = element instanceof SVGElement ? style.fill : style.color;
            return [text, page].map((colour) => colour.match(/[0-9.]+/g).slice(0, 3).map(Number));
        }""",
        selector,
    )
    light, dark = sorted((_luminance(colour) for colour in colours), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: list[float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (value / 255 for value in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_print_has_light_colours_and_charts_within_the_paper(browser: Any, report: Path) -> None:
    page = show(browser, report, color_scheme="dark").page
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.set_viewport_size({"width": PAPER, "height": 1000})
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert contrast(page, ".chart svg text") >= 4.5
    boxes = page.eval_on_selector_all(".chart svg", "all => all.map((one) => one.getBoundingClientRect().toJSON())")
    assert all(box["right"] <= PAPER and box["height"] > 150 for box in boxes)
    assert all(page.evaluate(DRAWN))
    assert page.evaluate("[...document.querySelectorAll('details.printed')].every((one) => one.open)")


def test_page_has_no_sideways_scrolling_on_a_phone(browser: Any, report: Path) -> None:
    page = show(browser, report, viewport={"width": 390, "height": 800}).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_charts_and_tables_are_described(browser: Any, report: Path) -> None:
    page = show(browser, report).page
    assert page.get_attribute("html", "lang") == "en"
    labels = page.eval_on_selector_all("[role=img]", "all => all.map((one) => one.getAttribute('aria-label'))")
    assert all(len(label or "") > 20 for label in labels)
    assert page.eval_on_selector_all("table th:not([scope])", "all => all.length") == 0
    assert page.eval_on_selector_all("section[aria-labelledby]", "all => all.length") >= 4
