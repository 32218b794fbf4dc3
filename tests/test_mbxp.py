import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import ends

from harness_llm.errors import EnvironmentMissing, RunFailed
from harness_llm.evaluate import scoring_service as service
from harness_llm.evaluate.mbxp import container, runner
from harness_llm.evaluate.mbxp import container as mbxp
from harness_llm.evaluate.mbxp.programs import LANGUAGES, Program, assemble, canaries
from harness_llm.evaluate.sandbox import run_sandboxed

pytestmark = pytest.mark.processes

RIGHT = "def twice(x):\n    return 2 * x\n```\nprint('the end')"
WRONG = RIGHT.replace("2 *", "3 *")


def target(language: str = "python", function: str = "twice", test: str = "") -> str:
    return json.dumps({"lang": language, "entry_point": function, "test": test})


CHECK = target(test="def check(candidate):\n    assert candidate(4) == 8\n")


@pytest.mark.parametrize(
    ("language", "answer", "code"),
    [
        ("python", "  def f(a\\_b):\n  pass```and so on", "def f(a_b):\n  pass\nTEST\\_\ncheck(f)"),
        ("cpp", "  int f() {}\n```\n```more", "  int f() {}\nTEST\\_"),
        ("php", "<?php $a\\_b;", "<?php $a_b;TEST\\_"),
        ("typescript", "```", "TEST\\_"),
    ],
)
def test_program_is_joined_with_its_test(language: str, answer: str, code: str) -> None:
    assert assemble(target(language, "f", "TEST\\_"), answer) == Program(language, code)


def test_languages_equal_those_of_the_reference() -> None:
    assert assemble(target("kotlin"), "fun f() {}") is None
    assert mbxp.score([target("kotlin")], ["fun f() {}"], 1) == []


def test_container_of_a_program_has_no_network_and_no_rights() -> None:
    assert container.arguments("docker", "name") == [
        *("docker", "run", "--rm", "--interactive", "--name", "name", "--pull", "never"),
        *("--network", "none", "--user", "65534:65534", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--memory", "2g", "--memory-swap", "2g", "--cpus", "1", "--pids-limit", "128"),
        *("--read-only", "--tmpfs", "/tmp:rw,exec,nosuid,nodev,size=256m"),  # noqa: S108
        *("--workdir", "/tmp", "--env", "HOME=/tmp"),  # noqa: S108
        *("harness-llm-mbxp", "python3", "-c", Path(runner.__file__).read_text()),
    ]


def ask_runner(*programs: Program) -> list[bool]:
    """The runner's results of own programs, run as in the container."""
    lines = "".join(json.dumps(program._asdict()) + "\n" for program in programs)
    done = run_sandboxed([sys.executable, "-c", Path(runner.__file__).read_text()], f"{lines}\n", 300)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_is_compiled_and_run(language: str) -> None:
    how = runner.LANGUAGES[language]
    for command in filter(None, (how.compiler[:1], how.command[:1])):
        if not command[0].startswith(".") and not shutil.which(command[0]):
            pytest.skip(f"no {command[0]} on this machine")
    lodash = ["node", "-e", "require('lodash')"]
    if language == "javascript" and subprocess.run(lodash, capture_output=True, check=False).returncode:
        pytest.skip("no lodash on this machine")
    assert ask_runner(*canaries(language)) == [True, False]


def test_runner_ends_when_its_standard_input_closes() -> None:
    """The host's end is closed when its process is killed."""
    program = Program("python", "import time; time.sleep(600)")
    command = [sys.executable, "-c", Path(runner.__file__).read_text()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        process.stdin.write(json.dumps(Program("python", "")._asdict()) + "\n" + json.dumps(program._asdict()) + "\n\n")
        process.stdin.flush()
        assert process.stdout
        assert process.stdout.readline() == "true\n"
        process.stdin.close()
        assert process.wait(60) == 1


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        ("import sys; sys.exit(0)", False),  # before its test
        ("if __name__ == '__main__':\n    raise ValueError", True),
        ("assert input() == ''", False),
        ("print('true')", True),
        ("def f(:", False),
        ("assert open('main.py').read()\nopen('main.py', 'w').write('')", True),
    ],
)
def test_python_programs_run_as_in_the_reference(code: str, passes: bool) -> None:
    assert ask_runner(Program("python", code), Program("python", "")) == [passes, True]


def test_program_over_its_time_limit_is_killed_with_its_children(tmp_path: Path) -> None:
    script = (
        "import subprocess as s, time; print(s.Popen(['sleep', '1200']).pid, file=open('pid', 'w')); time.sleep(1200)"
    )
    assert runner.exit_code((sys.executable, "-c", script), 1, str(tmp_path)) is None
    left = int((tmp_path / "pid").read_text())
    assert ends(left)


def test_missing_interpreter_is_no_exit_code(tmp_path: Path) -> None:
    assert runner.exit_code(("no-such-command",), 1, str(tmp_path)) is None


ENGINE = """#!/bin/sh
echo "$1" >> "$0.log"
case "$1" in
    info) {info} ;;
    image) {image} ;;
    run) for last; do :; done; {run} ;;
esac
"""
RUN = f'exec {sys.executable} -c "$last"'


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker program without isolation, for own programs only."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return install(tmp_path / "docker")


def install(file: Path, info: str = "exit 0", image: str = "exit 0", run: str = RUN) -> Path:
    file.write_text(ENGINE.format(info=info, image=image, run=run))
    file.chmod(0o755)
    return file


def test_programs_are_scored_in_order(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "BATCH", 2)
    targets = [CHECK, target("java"), CHECK, CHECK]
    assert mbxp.score(targets, [RIGHT, "class Main {}", WRONG, RIGHT], workers=2) == [100.0, 0.0, 100.0]
    commands = Path(f"{engine}.log").read_text().split()
    assert commands.count("run") == commands.count("rm") == 3  # one more finds out whether Python is there


@pytest.mark.parametrize(
    ("parts", "what", "text"),
    [
        (
            {"info": "echo no daemon >&2; exit 1"},
            "missing container engine",
            "docker: no daemon; no-such-engine: not installed",
        ),
        (
            {"image": "exit 1"},
            "missing container image of MBXP",
            "DOCKER_BUILDKIT=1 docker build --tag harness-llm-mbxp setup/mbxp",
        ),
        ({"run": f"{RUN} | sed s/true/false/"}, "missing languages", "wrong results of test programs in python"),
        ({"run": f"{RUN} | sed s/false/true/"}, "missing languages", "wrong results of test programs in python"),
    ],
)
def test_scoring_without_a_container_engine_is_refused(
    engine: Path, monkeypatch: pytest.MonkeyPatch, parts: dict[str, str], what: str, text: str
) -> None:
    install(engine, **parts)
    monkeypatch.setattr(container, "ENGINES", ("docker", "no-such-engine"))
    with pytest.raises(EnvironmentMissing, match=what) as caught:
        mbxp.score([CHECK], [RIGHT], 1)
    assert text in str(caught.value)


@pytest.mark.parametrize("run", [f"{RUN}; kill -9 $$", "head -n 1 > /dev/null; echo true", "echo broken >&2; exit 125"])
def test_container_that_ends_early_is_reported(engine: Path, run: str) -> None:
    install(engine, run=run.removeprefix("exec "))
    with pytest.raises(RunFailed, match="ended early"):
        mbxp.score([CHECK], [RIGHT], 1)


def engine_missing() -> str:
    try:
        container.find_engine()
    except EnvironmentMissing as error:
        return f"{error.what}: {error.found}"
    return ""


@pytest.mark.skipif(bool(engine_missing()), reason=engine_missing())
@pytest.mark.parametrize(
    ("code", "passes"),
    [
        ("import os; assert os.getuid() == 65534 and os.getpid() != 1", True),
        ("import socket; socket.create_connection(('1.1.1.1', 53), 2)", False),
        ("open('/usr/left', 'w')", False),
        ("x = bytearray(4 << 30)", False),
        ("import os\nwhile True: os.fork()", False),
        ("import os, signal; os.kill(1, signal.SIGKILL)", True),
    ],
)
def test_programs_are_scored_in_a_container(code: str, passes: bool) -> None:
    programs = [Program("python", code), *canaries("python")]
    assert container.run_programs(programs, 1) == [passes, True, False]
