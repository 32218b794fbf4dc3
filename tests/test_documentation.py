"""README.md and docs/: references equal the code; links, commands, options, keys and variables exist."""

import re
from pathlib import Path

import pytest
from makefile import variable
from printed_commands import command_error, commands_of, settings_of

from docs import live_view
from docs.references import PAGES, generated
from docs.terminal import EXCERPT, PICTURE, draw, excerpt
from harness_llm.config.engine_arguments import engine_arguments
from harness_llm.config.engine_config import HarnessConfig, ReplayConfig, ServerConfig
from harness_llm.config.environment import from_environment
from harness_llm.config.options import Options
from harness_llm.config.plan import resolve
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.tuning.search_steps import Goal

README = CHECKOUT / "README.md"
DOCUMENTS = [README, *sorted((CHECKOUT / "docs").glob("*.md"))]
CODE = [
    file
    for folder in ("harness_llm", "setup", "submission", "models", "code")
    for file in sorted((CHECKOUT / folder).rglob("*"))
    if file.suffix in (".py", ".sh", ".yaml", ".conf", ".j2")
]
NAMES = [str(document.relative_to(CHECKOUT)) for document in DOCUMENTS]
# Variables that a user may set; others belong to libraries and tools.
VARIABLE = re.compile(
    r"\b(?:HARNESS_LLM|MLPERF|LAB|CF_ACCESS|LLMBOOST|HUGGINGFACE)_[A-Z_]+[A-Z]\b|\bHF_TOKEN(?:_PATH)?\b"
)
# A command line of make with settings.
MAKE = re.compile(r"(?:^ {4,}(?:\w+=\S+ )*|`)make ([a-z_ -]+ [A-Z_]+=[^`\n]*)", re.MULTILINE)


def texts() -> str:
    return "\n".join(document.read_text() for document in DOCUMENTS)


def anchors(document: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES)
def test_references_equal_the_code(page: str) -> None:
    text = (CHECKOUT / "docs" / page).read_text()
    assert generated(text) == text, "stale: run `.venv/bin/python -m docs.references`"


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_files_and_headings(name: str) -> None:
    document = CHECKOUT / name
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", document.read_text()):
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.is_file(), target
        assert not anchor or anchor in anchors(file), target


def test_every_page_is_linked_from_the_readme() -> None:
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)", README.read_text()))
    assert linked == {document.name for document in DOCUMENTS} - {README.name}


def test_pages_that_the_code_names_exist() -> None:
    named = {name for file in CODE for name in re.findall(r"\bdocs/([\w-]+\.md)\b", file.read_text())}
    assert named
    assert named <= {document.name for document in DOCUMENTS}


def test_the_readme_is_short_and_begins_with_its_two_commands() -> None:
    lines = README.read_text().splitlines()
    assert len(lines) <= 150
    commands = [line.strip() for line in lines if line.startswith("    ")]
    assert commands[:2] == ['make submission COMPANY="Acme" SYSTEM_NAME="my-box"', "make test"]


@pytest.mark.parametrize("name", NAMES)
def test_commands_are_read_by_their_parsers(name: str) -> None:
    commands = list(commands_of((CHECKOUT / name).read_text()))
    assert [error for words in commands if (error := command_error(words))] == []


def test_commands_are_found_in_code_and_in_sentences() -> None:
    found = [words for document in DOCUMENTS for words in commands_of(document.read_text())]
    own = [words for words in found if words[0] in ("make", "harness-llm", "bash")]
    assert len(own) > 150
    assert ["make", "submission", "PROFILE=fast", "DIVISION=open"] in own
    assert ["bash", "setup/start_submission_env.sh", "harness-llm", "runs", "--last", "20"] in own


@pytest.mark.parametrize(
    "text",
    [
        "    make sbmission",
        "`make download CATEGORY=edge`",
        "`harness-llm tune --part model`",
        "    bash setup/start.sh",
    ],
)
def test_wrong_command_of_a_page_is_found(text: str) -> None:
    assert all(command_error(words) for words in commands_of(text))


def test_submissions_of_the_readme_are_accepted_in_their_division() -> None:
    node = README.read_text().split("## A benchmark on a GPU node")[1]
    [exported] = re.findall(r"^ +export (MODEL=.*)$", node, re.MULTILINE)
    submissions = re.findall(r"^ +make submission(.*)$", node, re.MULTILINE)
    assert len(submissions) == 3
    for line in submissions:
        options = from_environment(Options(gpu="h200"), settings_of(exported) | settings_of(line))
        assert resolve(options, Workspace(CHECKOUT)).scenarios, line


def test_settings_exist() -> None:
    sections = {
        "harness_config": set(HarnessConfig.model_fields),
        "server_config": set(ServerConfig.model_fields),
        "replay_config": set(ReplayConfig.model_fields),
        "llm_config": set(engine_arguments()),
    }
    found = re.findall(r"\b(\w+_config)\.(\w+)", texts())
    assert {section for section, _ in found} == set(sections)
    assert all(key in sections[section] for section, key in found)


def shortest_probe_s(profile: str) -> float:
    options = Options(model="llama2-70b", gpu="h200", scenarios=("Server",), profile=profile, division="open")
    [plan] = resolve(options, Workspace(CHECKOUT)).scenarios
    return Goal(plan.load).shortest_s


def test_shortest_probes_of_tune_are_documented() -> None:
    text = f"probes of {shortest_probe_s('valid'):g} s or more (profile `fast`: {shortest_probe_s('fast'):g} s)"
    assert text in (CHECKOUT / "docs/tuning.md").read_text()


def test_every_variable_of_the_makefile_and_of_the_code_is_documented() -> None:
    settings = set(variable("SETTINGS"))
    read = {name for file in CODE for name in VARIABLE.findall(file.read_text())}
    documented = set(re.findall(r"`([A-Z][A-Z_]+)`", (CHECKOUT / "docs/configuration.md").read_text()))
    assert {"COMPANY", "RUN_AS"} <= settings
    assert (settings | read) - documented == set()


def test_the_picture_shows_its_text() -> None:
    assert draw(EXCERPT.read_text()) == PICTURE.read_text(), "stale: run `.venv/bin/python -m docs.terminal`"
    assert "http" not in re.sub(r'xmlns="[^"]*"|<!--.*?-->', "", PICTURE.read_text())


def test_the_picture_of_the_live_view_shows_its_text() -> None:
    view = live_view.EXCERPT.read_text().rstrip("\n")
    assert live_view.draw(view) == live_view.PICTURE.read_text(), "stale: run `.venv/bin/python -m docs.live_view`"
    assert "http" not in re.sub(r'xmlns="[^"]*"|<!--.*?-->', "", live_view.PICTURE.read_text())
    erased = "\x1b[1A\x1b[2K" * 3
    assert live_view.views(f"starting for 0:03: compiling\r\n{erased}{view}\r\n{erased}{view}\r\n") == [view, view]


def test_the_excerpt_of_a_run_has_plan_results_and_verdict_without_repetition() -> None:
    log = """uv is ready after 3 s
  to prepare: train
  Server       performance  2048 samples, about 0:26
train: step 120/1200, loss 1.63 (10%)
train: step 1200/1200, loss 0.05 (100%)
Server: starting 1 x vllm
starting for 0:10: initializing
Server performance: 2048 samples, about 0:26
Server performance: running, 0:07 elapsed, 0:18 left, 600/2048 samples
Server performance: running, 0:17 elapsed, 0:08 left, 1388/2048 samples, 1 replica: 0 in flight, KV cache 1%
Server performance: VALID, 589 tokens/s, 80.9 samples/s
Server TEST06: VALID
warning placeholder: a file has one
  where: open/Acme/results
0 errors, 1 warning
/home/me/checkout/submission/inference_results_6.1-smoke
"""
    assert excerpt(log).splitlines()[1:] == [
        "…",
        "  to prepare: train",
        "  Server       performance  2048 samples, about 0:26",
        "train: step 1200/1200, loss 0.05 (100%)",
        "Server: starting 1 x vllm",
        "Server performance: running, 0:17 elapsed, 0:08 left, 1388/2048 samples, …",
        "Server performance: VALID, 589 tokens/s, 80.9 samples/s",
        "Server TEST06: VALID",
        "…",
        "0 errors, 1 warning",
        "submission/inference_results_6.1-smoke",
    ]
