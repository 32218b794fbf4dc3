"""Every command and option in a message is one that the user can type: the parsers of harness-llm and make read it."""

import enum
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from printed_commands import (
    CODE,
    COMMANDS,
    GROUP,
    OTHERS,
    UNKNOWN,
    VERB,
    Call,
    Text,
    calls,
    lines,
    make_error,
    messages,
    options_of,
    parse_line,
    scripts_of,
    settings_of,
    targets_of,
)

from harness_llm.config.benchmark import Sampling
from harness_llm.config.commands import MAKE_VARIABLE, SETTINGS, command, engine_setting, name_of, repeat, typed
from harness_llm.config.engine_arguments import engine_arguments
from harness_llm.config.engine_config import HarnessConfig, ReplayConfig, ServerConfig
from harness_llm.config.engines import ENGINES
from harness_llm.config.environment import from_environment
from harness_llm.config.options import SCENARIOS, Options, declared_options, option_name
from harness_llm.paths import CHECKOUT, IMAGE_VARIABLE
from harness_llm.pipeline.engine_settings.backend_rules import load_rules

TEXTS = [text for file in CODE for text in messages(file)]
LINES = [line for file in OTHERS for line in lines(file)]
WHOLE = ("command", "command_line", "repeat")
CALLS = [call for file in CODE for call in calls(file)]
OPTIONS = {name for one in (GROUP, *COMMANDS.values()) for p in one.params for name in (*p.opts, *p.secondary_opts)}
# Other programs, whose options occur in messages.
FOREIGN = re.compile(
    r"\b(?:amd-smi|cpupower|docker|DOCKER_BUILDKIT|Docker|git|init|fetch|checkout|journalctl|mount|nvidia-smi|nvidia-ctk"
    r"|official checker|podman|prlimit|sudo|unshare)\b"
)
# Texts for all users: --help, and a module below the configuration, which names both.
FOR_ALL = re.compile(r"harness_llm/(?:cli/\w+_declarations|cli/main|config/options|hardware/gpus)\.py:")
SAMPLE = Options(model="demo", scenarios=("Offline",), system_name="box", gpu="cpu", division="open")
KNOWN = {
    "profile": [*yaml.safe_load((CHECKOUT / "models/profiles.yaml").read_text())],
    "division": ["closed", "open", "network"],
    "category": ["datacenter", "edge"],
    "engine": [*ENGINES],
    "scenarios": [*SCENARIOS],
    "model": [*(file.parent.name for file in CHECKOUT.glob("models/*/benchmark.yaml")), "NAME"],
}
SECTIONS = {
    "harness_config": set(HarnessConfig.model_fields),
    "server_config": set(ServerConfig.model_fields),
    "replay_config": set(ReplayConfig.model_fields),
    "sampling": set(Sampling.model_fields),
    "llm_config": {*engine_arguments(), "ARGUMENT"},
}


@pytest.fixture(params=[False, True], ids=["harness-llm", "make"])
def for_make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the messages are for users of make."""
    if request.param:
        monkeypatch.setenv(MAKE_VARIABLE, "1")
    return bool(request.param)


# Texts of the code


def options_in(text: Text) -> list[str]:
    return re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text.text)


def test_commands_are_written_by_functions() -> None:
    """A literal `harness-llm VERB` is wrong for users of make, and no test parses it."""
    assert [text for text in TEXTS if re.search(rf"harness-llm (?:-v )?(?:{VERB})\b", text.text)] == []


def test_options_with_a_setting_of_make_are_written_by_functions() -> None:
    names = {option_name(field) for field, setting in SETTINGS.items() if setting}
    texts = [*TEXTS, *(line for line in LINES if line.text.lstrip(" -").startswith("hint:"))]
    own = [text for text in texts if not FOR_ALL.match(text.place) and not FOREIGN.search(text.text)]
    assert [text for text in own if names & {*options_in(text)}] == []


def test_options_in_messages_exist() -> None:
    own = [text for text in TEXTS if not FOREIGN.search(text.text)]
    assert [(text, name) for text in own for name in options_in(text) if name not in OPTIONS | {"--help"}] == []
    assert sum(len(options_in(text)) for text in own) > 10


def test_targets_of_make_in_messages_exist() -> None:
    found = {words for text in (*TEXTS, *LINES) for words in targets_of(text.text)}
    assert "submission ENVIRONMENT=container" in found
    assert [error for words in sorted(found) if (error := make_error(words))] == []


def test_scripts_in_messages_exist_and_have_valid_syntax() -> None:
    found = {script for text in (*TEXTS, *LINES) for script in scripts_of(text.text)}
    assert len(found) > 5
    for script in found:
        subprocess.run(["sh", "-n", CHECKOUT / script], check=True)


def test_pip_reads_the_settings_that_messages_name(tmp_path: Path) -> None:
    pip = shutil.which("pip")
    if not pip:
        pytest.skip("no pip on PATH")
    lines = {line for text in TEXTS for line in re.findall(r"pip config set global\.[a-z-]+ \S+", text.text)}
    assert len(lines) == 4
    for line in lines:
        *_, key, value = shlex.split(line)
        subprocess.run([pip, *shlex.split(line)[1:]], env={"HOME": str(tmp_path)}, capture_output=True, check=True)
        done = subprocess.run([pip, "config", "get", key], env={"HOME": str(tmp_path)}, capture_output=True, check=True)
        assert done.stdout.decode().strip() == value


# Calls of the functions that write commands and options


def parameter(verbs: list[str], name: str) -> Any:
    """The parameter of a command of `verbs` that has the option `name`."""
    for verb in verbs:
        for one in COMMANDS[verb].params:
            if option_name(name) in one.opts or (name == "package" and one.name == name):
                return one
    raise AssertionError(f"{option_name(name)} is not an option of {', '.join(verbs)}")


def sample(parameter: Any) -> Any:
    """A value that the parser accepts."""
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind)).value
    return 1 if kind is int else UNKNOWN


def filled(call: Call) -> list[Call]:
    """The call with sample values for those of the run time; one for each command, if that is one of them."""
    words = [word for word in call.words if word != "-v"]
    verbs = [call.options["verb"]] if call.function == "repeat" and "verb" in call.options else ["submit"]
    if call.function.startswith("command"):
        verbs = ["submit", "package"] if words[0] == UNKNOWN else [words[0]]
    known = [*COMMANDS] if call.function == "typed" else verbs
    options = {name: value for name, value in call.options.items() if name != "verb"}
    for name, value in options.items():
        options[name] = sample(parameter(known, name)) if value == UNKNOWN else value
    if call.function == "repeat":
        return [replace(call, words=(SAMPLE,), options={**options, "verb": verbs[0]})]
    return [replace(call, words=_with_verb(call.words, verb), options=options) for verb in verbs]


def _with_verb(words: tuple[Any, ...], verb: str) -> tuple[Any, ...]:
    return (verb, *words[1:]) if words and words[0] == UNKNOWN else words


def text_id(call: Call) -> str:
    return f"{call.place}:{call.function}"


COMMAND_CALLS = [one for call in CALLS if call.function in WHOLE for one in filled(call)]
TYPED_CALLS = [one for call in CALLS if call.function == "typed" for one in filled(call)]


def test_calls_are_found_in_every_package() -> None:
    places = {call.place.split("/")[1] for call in CALLS}
    assert places >= {"analysis", "checker", "cli", "config", "pipeline", "prepare", "replicas", "runs", "submission"}


@pytest.mark.usefixtures("for_make")
@pytest.mark.parametrize("call", COMMAND_CALLS, ids=text_id)
def test_printed_command_is_read_by_its_parser(call: Call) -> None:
    program, _, words = call.write().partition(" ")
    if program == "make":
        assert not make_error(words)
    elif set(words.split()) & {"--help", "-v"} or len(words.split()) > 1 or not required(words):
        parse_line(f"{program} {words}")


def required(verb: str) -> bool:
    """Whether a command of only its name, which a message uses as its name, lacks an argument."""
    return any(one.required for one in COMMANDS[verb].params)


@pytest.mark.parametrize("call", TYPED_CALLS, ids=text_id)
def test_printed_options_are_read_by_their_parser(call: Call, for_make: bool) -> None:
    text = call.write()
    if for_make and all(SETTINGS.get(name) for name in call.options):
        assert not make_error(f"{'download' if 'part' in call.options else 'submission'} {text}")
    else:
        verbs = [v for v, one in COMMANDS.items() if {*call.options} <= {p.name for p in one.params}]
        assert verbs
        parse_line(f"harness-llm {verbs[0]} {text}")


def test_printed_values_exist() -> None:
    values = [(call, name, value) for call in CALLS for name, value in call.options.items() if name in KNOWN]
    assert [one for one in values if one[2] not in (UNKNOWN, *KNOWN[one[1]])] == []


def test_printed_names_of_options_exist() -> None:
    names = [call.words[0] for call in CALLS if call.function == "name_of"]
    assert names
    assert {*names} <= {*SETTINGS}


def test_printed_engine_settings_exist() -> None:
    keys = [call.words[0] for call in CALLS if call.function == "engine_setting" and call.words]
    keys += [rule.setting[0] for rule in load_rules()]
    assert len(keys) > 10
    for section, _, name in (key.partition(".") for key in keys):
        assert name in SECTIONS[section]


# The functions


def test_settings_have_the_names_of_the_makefile() -> None:
    for name, setting in SETTINGS.items():
        if setting:
            assert not make_error(f"{'download' if name == 'part' else 'submission'} {setting}=1")


def test_make_sets_the_variable() -> None:
    done = subprocess.run(
        ["make", "--eval", f"shown: ; echo ${MAKE_VARIABLE}$${MAKE_VARIABLE}", "shown"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip().endswith("1")


def test_options_and_commands_are_those_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    assert typed(stand_in=True, gpu="cpu") == "--stand-in --gpu cpu"
    assert command("submit", model="demo", company="A B") == "harness-llm submit --model demo --company 'A B'"
    assert engine_setting("llm_config.max_num_seqs", 8) == "--set llm_config.max_num_seqs=8"
    monkeypatch.setenv(MAKE_VARIABLE, "1")
    assert typed(stand_in=True, gpu="cpu") == "STAND_IN=1 GPU_NAME=cpu"
    assert name_of("gpu_count") == "GPU_COUNT"
    assert command("submit", model="demo", company="A B") == "make submission MODEL=demo COMPANY='A B'"
    assert command("download", model="gptj", part="model") == "make download MODEL=gptj PART=model"
    assert command("submit", high_accuracy=True).endswith("/harness-llm submit --high-accuracy")
    assert command("runs").endswith("/bin/harness-llm runs")
    assert (CHECKOUT / command("runs").split()[0]).is_file()
    monkeypatch.setenv(IMAGE_VARIABLE, "submission")
    assert command("runs") == "bash setup/start_submission_env.sh harness-llm runs"


RARE = Options(
    model="llama3.1-8b",
    scenarios=("Server", "Offline"),
    profile="fast",
    round="v5.1",
    division="open",
    category="datacenter",
    stand_in=True,
    system_name="my-box",
    gpu="h100",
    gpu_count=3,
    ray="auto",
    engine="transformers",
)
"""Options with settings of make, which all differ from their defaults."""


def test_repeated_command_has_the_options_of_the_first() -> None:
    more = replace(RARE, set=("llm_config.max_num_seqs=7", "harness_config.backlog=3"), high_accuracy=True)
    assert options_of(repeat(more)) == more
    assert options_of(repeat(more, "Offline", verb="run", tests=("accuracy", "TEST06"))) == replace(
        more, scenarios=("Offline",), tests=("accuracy", "TEST06")
    )
    assert options_of(repeat(more, company="Acme", package=False)) == replace(more, company="Acme", package=False)


def test_repeated_target_of_make_has_the_settings_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {name for name in declared_options() if getattr(RARE, name) != getattr(Options(), name)}
    assert asked | {"company", "again"} == {name for name, setting in SETTINGS.items() if setting and name != "part"}
    monkeypatch.setenv(MAKE_VARIABLE, "1")
    line = repeat(RARE, company="Acme Inc")
    settings = settings_of(line)
    assert line.startswith("make submission ")
    found = from_environment(Options(ray=settings.pop("RAY_ADDRESS")), settings)
    assert replace(found, tests=None) == replace(RARE, company="Acme Inc")
    assert not make_error(line.removeprefix("make "))
