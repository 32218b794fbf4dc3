"""The reports in a real Chromium: what a user sees, and what the page must not do."""

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import write_recorded_run
from runs import write_limits, write_run
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

LABELS = """() => [...document.querySelectorAll(".chart")].map((chart) => {
    const frame = chart.getBoundingClientRect();
    return [...chart.querySelectorAll("svg text")].filter((text) => text.textContent.trim()).map((text) => {
        const box = text.getBoundingClientRect();
        const at = [box.left - frame.left, box.top - frame.top];
        return [text.textContent, ...at, box.width, box.height, frame.width, frame.height];
    });
})"""

pytestmark = [
    pytest.mark.processes(seconds=60),
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


@dataclass(frozen=True)
class Label:
    """A text of a chart in pixels, and the size of the chart."""

    text: str
    left: float
    top: float
    width: float
    height: float
    chart_width: float
    chart_height: float

    @property
    def inside(self) -> bool:
        right, bottom = self.left + self.width, self.top + self.height
        return min(self.left, self.top) > -2 and right < self.chart_width + 2 and bottom < self.chart_height + 2

    def covers(self, other: "Label") -> bool:
        across = min(self.left + self.width, other.left + other.width) - max(self.left, other.left)
        down = min(self.top + self.height, other.top + other.height) - max(self.top, other.top)
        return across > 1 and down > 2


def labels(page: Any) -> list[list[Label]]:
    return [[Label(*one) for one in chart] for chart in page.evaluate(LABELS)]


def assert_readable(charts: list[list[Label]]) -> None:
    for chart in charts:
        assert [(a.text, b.text) for a, b in itertools.combinations(chart, 2) if a.covers(b)] == []
        assert [label.text for label in chart if not label.inside] == []


TRIALS = {
    "neighbours": [(100, 0.9), (430, 0.05), (431, 0.02), (431.5, -0.01), (432, 0.03), (433, -0.02)],
    "found at the left edge": [(100, 0.5), (100.5, 0.5), (900, -1), (4000, -9)],
    "equal points": [(100, 0.5)] * 9,
    "at the limit": [(100, 0.001), (101, 0.0), (102, -0.001), (103, -0.004)],
}


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("case", TRIALS)
def test_marks_of_trials_and_limits_do_not_cover_each_other(
    browser: Any, tmp_path: Path, case: str, width: int
) -> None:
    store = open_session(tmp_path, SESSION)
    for number, (target, margin) in enumerate(TRIALS[case]):
        state = "VALID" if margin > 0 else "INVALID"
        facts = {"kind": "probe", "state": state, "target_qps": target, "ttft_margin": margin}
        store.append(trial(number, **facts, tpot_margin=margin / 2))
    store.finish({"target": TRIALS[case][0][0]})
    page = show(browser, write(tmp_path, store.folder), viewport={"width": width, "height": 900}).page
    charts = labels(page)
    assert_readable(charts)
    texts = [label.text for label in charts[0]]
    assert {"limit", f"found: {TRIALS[case][0][0]}", "TTFT", "TPOT"} <= set(texts)
    assert sum(text.isdecimal() and int(text) < len(TRIALS[case]) for text in texts) >= min(len(TRIALS[case]), 4)


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("limit_ms", [1, 110, 100_000])
def test_label_of_a_limit_covers_no_other_text(browser: Any, tmp_path: Path, limit_ms: float, width: int) -> None:
    logs = tmp_path / "build/logs"
    for hour in range(3):
        run = write_recorded_run(logs, hour=hour, metrics={"p99_ttft_ms": 190.0, "p99_tpot_ms": 90.0})
        write_limits(run, ttft_ms=limit_ms, tpot_ms=limit_ms)
    page = show(browser, write(tmp_path, logs), viewport={"width": width, "height": 900}).page
    charts = labels(page)
    assert_readable(charts)
    shown = [label.text for chart in charts for label in chart]
    assert sum(text.startswith("p99 limit ") for text in shown) >= 2


def test_labels_are_placed_again_for_another_size_and_part(browser: Any, report: Path) -> None:
    page = show(browser, report, viewport={"width": 1200, "height": 900}).page
    page.set_viewport_size({"width": 500, "height": 900})
    page.wait_for_timeout(200)
    assert_readable(labels(page))
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert_readable(labels(page))


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
