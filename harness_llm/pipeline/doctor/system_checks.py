"""Checks of the system: description, requirements of closed datacenter submissions, released software, ECC."""

from collections.abc import Iterator, Mapping

from harness_llm.config.request import Request
from harness_llm.config.submission_names import Submission
from harness_llm.config.system_file import load_overrides, system_file
from harness_llm.errors import HarnessError
from harness_llm.hardware.ecc import Ecc, State
from harness_llm.paths import Workspace
from harness_llm.pipeline.doctor.check_result import CheckResult, from_error, not_checked, passed, warned
from harness_llm.runs.fingerprint import HARDWARE, software
from harness_llm.submission.consistency import require_same_description
from harness_llm.submission.datacenter import requirements_of
from harness_llm.submission.packaged import other_benchmarks
from harness_llm.submission.places import description_of, home_of
from harness_llm.submission.release import AVAILABLE, EXPECTED, faults_of_release
from harness_llm.submission.system_description import Description, describe

IMAGE_FRAMEWORK = {"framework": "that of the image"}
"""Detected on the host, where vLLM is installed only in the image."""
_DESCRIPTION = "System description"
_REQUIREMENTS = "Closed requirements"
_AVAILABILITY = "Availability"
_ECC = "ECC"
_SWITCH_ON = {
    "memory": "switch on ECC of the memory in the firmware setup",
    "accelerators": "sudo nvidia-smi --ecc-config=1, then reboot (AMD Instinct: contact the vendor)",
}


def check_system(
    submission: Submission, detected: Mapping[str, str], ecc: Ecc, workspace: Workspace
) -> Iterator[CheckResult]:
    """Check the system description and, in closed datacenter, the requirements.

    Args:
        detected: from `detect`, or of all nodes together.
        ecc: from `read_ecc`, or of all nodes together.
    """
    try:
        description = _describe(submission, detected, workspace)
    except HarnessError as error:
        yield from_error(_DESCRIPTION, error)
        return
    try:
        _compare(submission, description.require(), detected, workspace)
        yield passed(_DESCRIPTION, f"{submission.system}, {submission.division}")
    except HarnessError as error:
        yield from_error(_DESCRIPTION, error)
    if submission.division == "closed":
        yield from _check_requirements(description, ecc)


def _check_requirements(description: Description, ecc: Ecc) -> Iterator[CheckResult]:
    try:
        requirements = requirements_of(description.fields, ecc, description.file)
    except HarnessError as error:
        yield from_error(_REQUIREMENTS, error)
        return
    if requirements:
        refusals = [from_error(_REQUIREMENTS, error) for error in requirements.refusals()]
        yield from refusals or [passed(_REQUIREMENTS, f"documented in {description.file.name}")]


def _compare(
    submission: Submission, description: Mapping[str, str], detected: Mapping[str, str], workspace: Workspace
) -> None:
    """Compare the description with that of the system's other results; outside of the image, only the hardware."""
    if detected.items() >= IMAGE_FRAMEWORK.items():
        description = {name: value for name, value in description.items() if name in (*HARDWARE, "system_type")}
    home = home_of(submission, workspace.submission / submission.tree_name)
    others = other_benchmarks(submission, home)
    require_same_description(description_of(submission, home), description, detected, others)


def check_availability(request: Request) -> Iterator[CheckResult]:
    """Check that a system whose file says `status: available` runs released software."""
    file = system_file(request.workspace, request.options.system_name)
    try:
        status = load_overrides(file, request.round).get("status")
    except HarnessError:  # check_system reports an invalid file
        return
    if status != AVAILABLE:
        return
    found = dict.fromkeys(
        fault
        for plan in request.scenarios
        for fault in faults_of_release(software(request.options.engine, plan.config))
    )
    for fault in found:
        yield warned(_AVAILABILITY, fault, where=f"{file}: status: {AVAILABLE}", expected=EXPECTED)
    if not found:
        yield passed(_AVAILABILITY, "all packages are releases")


def check_ecc(ecc: Ecc) -> Iterator[CheckResult]:
    """Warn if ECC of memory or accelerators is off, which closed datacenter forbids."""
    for name, fact in ecc.facts.items():
        if fact.state is State.OFF:
            yield warned(
                f"{_ECC} of {name}", str(fact), expected="on, which closed datacenter requires", hint=_SWITCH_ON[name]
            )
        elif fact.state is State.UNKNOWN:
            yield not_checked(f"{_ECC} of {name}", "this machine does not report its state")
        elif fact.state is State.ON:
            yield passed(f"{_ECC} of {name}", str(fact))


def _describe(submission: Submission, detected: Mapping[str, str], workspace: Workspace) -> Description:
    file = system_file(workspace, submission.system)
    return describe(
        submission.system,
        submitter=submission.submitter,
        division=submission.division,
        category=submission.category,
        rules=submission.rules,
        detected=detected,
        overrides=load_overrides(file, submission.rules),
        file=file,
    )
