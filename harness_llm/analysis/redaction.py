"""Redaction of secrets and private names in text. Pure functions.

Patterns find only what looks like a secret: a person must look at the result before it is published.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

REDACTED = "REDACTED"

# Names of settings with a private value; not plurals, such as max_num_batched_tokens, and not a bare `key`.
_NAMED = (
    r"(?:[\w-]*[_-])?(?:(?:api|access|secret|private|auth|account|signing|encryption)[_-]?key(?:[_-]id)?"
    r"|(?:access|auth|refresh|session|bearer|hf|github|gitlab|id|api)[_-]?token|(?:client[_-])?secret|password|passwd"
    r"|passphrase|credentials?|(?-i:[A-Z0-9_]+_(?:TOKEN|KEY|SECRET)))"
)
_PUBLIC_HOSTS = (
    "localhost",
    "huggingface.co",
    "github.com",
    "pypi.org",
    "python.org",
    "pytorch.org",
    "vllm.ai",
    "nvidia.com",
    "amd.com",
    "mlcommons.org",
)
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"


class Pattern(NamedTuple):
    """A kind of private text; `secret` is the group that is replaced."""

    kind: str
    regex: re.Pattern[str]


def _pattern(kind: str, regex: str, flags: int = 0) -> Pattern:
    return Pattern(kind, re.compile(regex, flags))


PATTERNS = (
    _pattern("key", r"(?P<secret>-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z))"),
    _pattern("password", r"://[^\s/:@]*:(?P<secret>[^\s/@]+)@"),
    _pattern("secret", r"(?:Bearer|Basic)\s+(?P<secret>[A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE),
    _pattern(
        "secret",
        rf"(?<![\w-])(?:{_NAMED}|(?<=[\"'])token)[\"']?\s*[:=]\s*(?P<quote>[\"'])(?P<secret>(?:\\.|(?!(?P=quote)).)+)",
        re.IGNORECASE,
    ),
    _pattern(
        "secret",
        rf"(?<![\w-])(?:--)?{_NAMED}\\*[\"']?\s*[:=]\s*\\*[\"']?(?P<secret>[^\s\"',;&)}}\]\\]+)",
        re.IGNORECASE,
    ),
    _pattern(
        "secret",
        r"--(?:[\w-]*-)?(?:api-key|token|password|secret|auth-token)(?:\s+|=)[\"']?(?P<secret>[^\s\"',;-][^\s\"',;]*)",
    ),
    _pattern(
        "token",
        r"(?<![A-Za-z0-9])(?P<secret>hf_[A-Za-z0-9]{16,}|nvapi-[\w-]{16,}|sk-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}"
        r"|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}"
        r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})",
    ),
    _pattern("mail", r"(?P<secret>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"),
    _pattern("user", r"(?:/home|/Users)/(?P<secret>[^/\s\"':,;)<>]+)"),
    _pattern(
        "host",
        rf"://(?:[^\s/@]*@)?(?!(?:[\w-]+\.)*(?:{'|'.join(map(re.escape, _PUBLIC_HOSTS))})(?![\w.-]))"
        r"(?P<secret>[A-Za-z][\w-]*(?:\.[\w-]+)*)",
    ),
    # Not 0.0.0.0, 127.x.x.x and versions such as package==1.2.3.4.
    _pattern("address", rf"(?<![\w.=<>-])(?!0|127\.)(?P<secret>{_OCTET}(?:\.{_OCTET}){{3}})(?![\w.]|\.\d)"),
    _pattern(
        "address", r"(?<![\w:])(?P<secret>(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|fe80::[0-9a-f:]+)(?![\w:])", re.IGNORECASE
    ),
    _pattern("address", r"(?<![\w:])(?P<secret>[0-9a-f]{2}(?::[0-9a-f]{2}){5})(?![\w:])", re.IGNORECASE),
)
"""All patterns, in the order in which they are applied."""
_NUMBERED = ("host", "address", "user")


@dataclass
class Redactor:
    """Replaces private text; equal hosts, addresses and users get equal numbers.

    Attributes:
        names: further private texts by kind, such as the name of this host.
        counts: number of replacements by kind.
    """

    names: Mapping[str, Iterable[str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    _numbers: dict[tuple[str, str], int] = field(default_factory=dict)

    def __call__(self, text: str) -> str:
        """`text` without what the patterns find."""
        for kind, regex in (*self._own, *PATTERNS):
            text = regex.sub(self._replace(kind), text)
        return text

    @property
    def _own(self) -> list[Pattern]:
        return [
            _pattern(kind, rf"(?<![\w.-])(?P<secret>{re.escape(name)})(?![\w-])")
            for kind, names in self.names.items()
            for name in sorted(names, key=len, reverse=True)
        ]

    def _replace(self, kind: str) -> Callable[[re.Match[str]], str]:
        def replacement(match: re.Match[str]) -> str:
            found = match["secret"]
            if REDACTED in found:
                return match[0]
            self.counts[kind] = self.counts.get(kind, 0) + 1
            start, end = match.start("secret") - match.start(), match.end("secret") - match.start()
            return match[0][:start] + self._name(kind, found) + match[0][end:]

        return replacement

    def _name(self, kind: str, found: str) -> str:
        if kind not in _NUMBERED:
            return f"{REDACTED}-{kind}"
        numbers = self._numbers
        return f"{REDACTED}-{kind}-{numbers.setdefault((kind, found), sum(k == kind for k, _ in numbers) + 1)}"
