"""Checks of host settings that cost time or make it vary."""

from collections.abc import Iterator

from harness_llm.hardware.host_settings import Host, advice, unread
from harness_llm.pipeline.doctor.check_result import CheckResult, not_checked, passed, warned


def check_host(host: Host, node: str = "") -> Iterator[CheckResult]:
    """A warning for each setting of `host`, from `read_host`, that should be changed; `node` is its address."""
    tips = advice(host)
    for tip in tips:
        yield warned(tip.name, tip.why, where=node, hint=f"as root: {tip.command}")
    if missing := unread(host):
        yield not_checked("Host settings", f"this machine does not report {', '.join(missing)}")
    elif not tips:
        yield passed("Host settings", "as before a measurement")
