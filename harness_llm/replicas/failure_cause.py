"""Cause of a failed process in one line: from its exit code, its log, and what the kernel reported."""

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from harness_llm.protocol.child_processes import Child, Exit

MAX_LENGTH = 300

# Messages of exceptions that only refer to another one.
_REFERENCES = re.compile(
    r"see (?:the )?(?:root cause|stack trace)|stack trace \(?above|EngineDeadError|engine core exited|"
    r"WorkerProc initialization failed|Engine core initialization failed",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"^(?:\([^()]*pid=\d+[^()]*\) ?)?(?:(?:ERROR|CRITICAL) [\d-]+ [\d:.]+ \[[^\]]*\] ?)?")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Failure)\b(?::|$)")
_LAST_WORDS = re.compile(r"^\s*what\(\): +(.+)|^(Fatal Python error: .+)", re.MULTILINE)
_NO_CAUSE = re.compile(r"\b(?:WARNING|INFO|DEBUG)\b|^\[W|[Ww]arn|it/s\]|^bound to ")
_TRACEBACK, _CHAINED = "Traceback (most recent call last)", ("The above exception was", "During handling of the above")
_DEVICE_MEMORY = re.compile(
    r"(?:CUDA|HIP) out of memory\. Tried to allocate [\d.]+ \w+"
    r"(?:\.[^\n]*?GPU \d+ has a total capacity of [\d.]+ \w+ of which [\d.]+ \w+ is free)?"
)
_XID = re.compile(r"NVRM: Xid \(PCI:([\da-fA-F:.]+)\): (\d+)(.*)")
_CONSEQUENCES = {"43", "45"}  # Xids that follow the end of a process: its channel is stopped, or cleaned up
_RAS = re.compile(
    r"amdgpu .*(?:uncorrectable|GPU reset begin|RAS: .*error|fatal error|ring \S+ timeout).*", re.IGNORECASE
)
_OOM = re.compile(r"out of memory: Killed process (\d+) \(([^)]*)\)(?:.*?anon-rss:(\d+)kB)?", re.IGNORECASE)
_KILLED = re.compile(r"exit code:? -9\b|signal 9|SIGKILL")
_OWN_PROCESS = re.compile(r"(\S+) (?:with exit code|died unexpectedly \(exit code:) -(\d+)")
_NAMES = {number.value: number.name for number in signal.Signals}
_SHELL = 128  # plus the number of a signal: exit code of a guard whose server, or of a relay whose replica, was killed


@dataclass(frozen=True)
class Evidence:
    """What is known about a failed process.

    Attributes:
        exit_code: negative for a signal, or 128 plus its number; 0 before the exit.
        stated: cause that was reported before the exit: an exception, or why this process was killed.
        log: its output since its start.
        kernel: kernel log since its start; None if it cannot be read.
        oom_kills: number of processes that the kernel killed for lack of memory since its start; None if unknown.
    """

    exit_code: int
    stated: str = ""
    log: str = ""
    kernel: str | None = None
    oom_kills: int | None = None


def failure_cause(evidence: Evidence) -> str:
    """Return the cause in one line; causes that have others as consequences come first."""
    stated = "" if _REFERENCES.search(evidence.stated) else evidence.stated
    cause = (
        _host_memory(evidence)
        or "; ".join(filter(None, [_device_error(evidence.kernel or ""), stated]))
        or _signal(evidence)
        or _exception(evidence.log)
        or evidence.stated
        or ": ".join(filter(None, [f"exit code {evidence.exit_code}", _last_line(evidence.log)]))
    )
    line = " ".join(_without_advice(cause).split())
    return line if len(line) <= MAX_LENGTH else f"{line[: MAX_LENGTH - 1]}…"


def cause_of_exit(event: Exit, stated: str = "") -> str:
    """Return the cause of the exit of a child process."""
    return _cause(event.child, event.code, stated)


def cause_before_exit(child: Child, stated: str) -> str:
    """Return the cause of the failure of a child process that has not exited."""
    return _cause(child, 0, stated)


def _cause(child: Child, exit_code: int, stated: str) -> str:
    kernel = child.kernel
    return failure_cause(Evidence(exit_code, stated, child.output(), kernel.messages(), kernel.oom_kills()))


def _host_memory(evidence: Evidence) -> str:
    """The kernel's kill for lack of memory, if the process or one of its own was killed.

    The kernel log has the kills of the whole machine, the count only those of this cgroup.
    """
    own = evidence.exit_code in (-signal.SIGKILL, _SHELL + signal.SIGKILL)
    if evidence.oom_kills == 0 or not (own or _KILLED.search(f"{evidence.stated}\n{evidence.log}")):
        return ""
    if killed := _OOM.search(evidence.kernel or ""):
        used = f", {int(killed[3]) / 2**20:.1f} GiB in use" if killed[3] else ""
        return f"out of host memory: the kernel killed process {killed[1]} ({killed[2]}{used})"
    if evidence.oom_kills:
        return f"out of host memory: the kernel killed {evidence.oom_kills} processes of this cgroup"
    return ""


def _device_error(kernel: str) -> str:
    for found in _XID.finditer(kernel):
        if found[2] not in _CONSEQUENCES:
            text = re.sub(r"(?:,? *(?:pid|name)=[^,]*)+", "", found[3]).strip(", ")
            return f"GPU error Xid {found[2]} of {found[1]}" + (f": {text}" if text else "")
    found_ras = _RAS.search(kernel)
    return f"GPU error: {found_ras[0]}" if found_ras else ""


def _without_advice(cause: str) -> str:
    """Shorten torch's message about the memory of a device to its figures."""
    found = _DEVICE_MEMORY.search(cause)
    return found[0] if found else cause


def _signal(evidence: Evidence) -> str:
    """The signal that ended the process or one of its own, and what is known about its origin."""
    name, number = _ended_by(evidence)
    if not number:
        return ""
    text = f"{name}exit by signal {number}" + (f" ({_NAMES[number]})" if number in _NAMES else "")
    if number != signal.SIGKILL:
        last_words = _LAST_WORDS.search(evidence.log)
        return f"{text}: {last_words[1] or last_words[2]}" if last_words else text
    unknown = evidence.kernel is None and evidence.oom_kills is None
    return text + (", the kernel log cannot be read" if unknown else ", not for lack of memory")


def _ended_by(evidence: Evidence) -> tuple[str, int]:
    """The name of the killed process, empty for the process itself, and the signal's number; 0 without a signal."""
    if evidence.exit_code < 0:
        return "", -evidence.exit_code
    if evidence.exit_code > _SHELL:
        return "", evidence.exit_code - _SHELL
    found = _OWN_PROCESS.search(f"{evidence.stated}\n{evidence.log}")
    return (f"{found[1]}: ", int(found[2])) if found else ("", 0)


def _exception(log: str) -> str:
    """The first exception in `log` that does not refer to another one: later ones are its consequences."""
    return next((text for text in _exceptions(log) if not _REFERENCES.search(text)), "")


def _last_line(log: str) -> str:
    """The last line of `log` that is no warning and no progress."""
    lines = (line.strip() for line in reversed(log.splitlines()))
    return next((line for line in lines if line and not _NO_CAUSE.search(line)), "")


def _exceptions(log: str) -> Iterator[str]:
    """Yield the last line of each traceback, or of each chain of them."""
    in_traceback, last = False, ""
    for line in (_PREFIX.sub("", line, count=1) for line in log.splitlines()):
        if line.startswith(_TRACEBACK):
            if last:
                yield last
            in_traceback, last = True, ""
        elif line.startswith(_CHAINED) and last and not _REFERENCES.search(last):
            last = ""
        elif in_traceback and _EXCEPTION.match(line):
            in_traceback, last = False, line
    if last:
        yield last
