"""Cause of a failed process: logs of the real vLLM, and texts of the kernel."""

from pathlib import Path

import pytest

from harness_llm.hardware.kernel_events import KernelEvents, event_files, messages_since
from harness_llm.replicas.failure_cause import MAX_LENGTH, Evidence, failure_cause

LOGS = Path(__file__).with_name("data") / "failures"
"""Logs of vLLM 0.30 for CPUs: a killed engine core, a KV cache larger than the memory in the replica's process and in
one of its own, and a checkpoint without weights."""

CORE_KILLED = 'exception RuntimeError("vLLM\'s engine core exited: EngineCore with exit code -9; its log is above")'
CORE_FAILED = (
    "exception RuntimeError('Engine core initialization failed. See root cause above. Failed core proc(s): {}')"
)
KV_CACHE = "ValueError: Available memory on node 0"

# Recorded with Linux 6.18 when a process exceeded the limit of its memory cgroup.
CGROUP_OOM = """\
python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/box,task=python,pid=8116,uid=0
Memory cgroup out of memory: Killed process 8116 (python) total-vm:313304kB, anon-rss:303488kB, file-rss:6092kB, \
shmem-rss:0kB, UID:0 pgtables:652kB oom_score_adj:0
"""

# Texts as vLLM 0.10 to 0.12, Linux 6 and the drivers of NVIDIA and AMD print them; not recorded on a GPU.
CUDA_WORKER = """\
(EngineCore_DP0 pid=311) INFO 11-02 03:11:40 [gpu_model_runner.py:2602] Starting to load model llama...
(EngineCore_DP0 pid=311) ERROR 11-02 03:11:58 [core.py:708] EngineCore failed to start.
(EngineCore_DP0 pid=311) ERROR 11-02 03:11:58 [core.py:708] Traceback (most recent call last):
(EngineCore_DP0 pid=311) ERROR 11-02 03:11:58 [core.py:708]     super().__init__(vllm_config, executor_class)
(EngineCore_DP0 pid=311) ERROR 11-02 03:11:58 [core.py:708] torch.OutOfMemoryError: CUDA out of memory. Tried to \
allocate 448.00 MiB. GPU 0 has a total capacity of 79.25 GiB of which 112.94 MiB is free. Including non-PyTorch \
memory, this process has 79.13 GiB memory in use. Of the allocated memory 78.30 GiB is allocated by PyTorch, and \
212.49 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting \
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.
Traceback (most recent call last):
  File "vllm/v1/engine/utils.py", line 710, in wait_for_engine_startup
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}
"""
XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XID_45 = "NVRM: Xid (PCI:0000:3b:00): 45, pid=4711, name=python, Ch 00000008"
RAS = "amdgpu 0000:83:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block"
OOM = (
    "Out of memory: Killed process 4711 (VLLM::EngineCor) total-vm:912340kB, anon-rss:524288000kB, file-rss:0kB, "
    "shmem-rss:0kB, UID:0 pgtables:1024kB oom_score_adj:0"
)
TWO_GIB = "CUDA out of memory. Tried to allocate 2.00 GiB"


def cause(code: int, stated: str = "", log: str = "", kernel: str | None = "", kills: int | None = 0) -> str:
    return failure_cause(Evidence(code, stated, log, kernel, kills))


def log(name: str) -> str:
    return (LOGS / f"{name}.txt").read_text()


@pytest.mark.parametrize("stated", ["", CORE_FAILED])
def test_root_exception_of_vllms_processes_is_the_cause(stated: str) -> None:
    assert cause(4, stated, log("kv_cache_too_big_own_process")).startswith(KV_CACHE)
    assert cause(4, "", log("kv_cache_too_big")).startswith(KV_CACHE)
    assert cause(4, "", log("missing_weights")).startswith("RuntimeError: Cannot find any model weights with")
    out_of_memory = "CUDA out of memory. Tried to allocate 448.00 MiB. GPU 0 has a total capacity of 79.25 GiB of which"
    assert cause(4, stated, CUDA_WORKER) == f"{out_of_memory} 112.94 MiB is free"


def test_exception_that_the_replica_reports_is_the_cause() -> None:
    assert cause(4, "exception ValueError('no')", log("missing_weights")) == "exception ValueError('no')"
    assert cause(4, f"exception OutOfMemoryError('{TWO_GIB}. GPU')") == TWO_GIB


def test_last_exception_of_a_chain_is_the_cause() -> None:
    chain = "Traceback (most recent call last):\nKeyError: 'a'\n\nDuring handling of the above exception, another \
exception occurred:\n\nTraceback (most recent call last):\n  x\nvllm.Failed.ConfigError: no key a\n"
    assert cause(4, log=chain) == "vllm.Failed.ConfigError: no key a"


def test_killed_engine_core_is_the_cause() -> None:
    text = log("engine_core_killed")
    assert cause(4, CORE_KILLED, text) == "EngineCore: exit by signal 9 (SIGKILL), not for lack of memory"
    assert cause(4, CORE_KILLED, text, OOM, 1).startswith("out of host memory: the kernel killed process 4711")


@pytest.mark.parametrize(
    ("kernel", "kills", "expected"),
    [
        ("", 0, "exit by signal 9 (SIGKILL), not for lack of memory"),
        (None, None, "exit by signal 9 (SIGKILL), the kernel log cannot be read"),
        (None, 2, "out of host memory: the kernel killed 2 processes of this cgroup"),
        (OOM, None, "out of host memory: the kernel killed process 4711 (VLLM::EngineCor, 500.0 GiB in use)"),
        (CGROUP_OOM, 0, "exit by signal 9 (SIGKILL), not for lack of memory"),
        (CGROUP_OOM, 1, "out of host memory: the kernel killed process 8116 (python, 0.3 GiB in use)"),
        (XID_45, 0, "exit by signal 9 (SIGKILL), not for lack of memory"),
    ],
)
def test_signal_9_is_explained_by_the_kernel(kernel: str | None, kills: int | None, expected: str) -> None:
    assert cause(-9, kernel=kernel, kills=kills) == expected
    assert cause(137, kernel=kernel, kills=kills) == expected


def test_kills_of_other_processes_are_not_the_cause_of_an_exception() -> None:
    assert cause(4, "exception ValueError('no')", kernel=OOM, kills=1) == "exception ValueError('no')"


def test_gpu_errors_of_the_kernel_log_precede_their_consequences() -> None:
    fallen = "GPU error Xid 79 of 0000:3b:00: GPU has fallen off the bus."
    assert cause(-6, log=CUDA_WORKER, kernel=f"{XID_45}\n{XID_79}") == fallen
    stated = "no heartbeat for 25 s"
    assert cause(-9, stated, kernel=XID_79) == f"{fallen}; {stated}"
    assert cause(1, kernel=RAS) == f"GPU error: {RAS}"


def test_other_signals_and_exit_codes() -> None:
    abort = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
    assert cause(-6, log=abort) == "exit by signal 6 (SIGABRT): std::bad_alloc"
    fatal = "Fatal Python error: Segmentation fault\n"
    assert cause(-11, log=fatal) == "exit by signal 11 (SIGSEGV): Fatal Python error: Segmentation fault"
    assert cause(-9, "no heartbeat for 25 s") == "no heartbeat for 25 s"
    assert cause(3, log="bound to 1 CPUs\nWARNING: Triton is installed\n") == "exit code 3"
    assert cause(3, log="no such device\n[W1122 17:53:40 utils.cpp:68] Warning: x\n") == "exit code 3: no such device"


def test_cause_is_one_short_line() -> None:
    found = cause(4, "exception ValueError('" + "long\n" * 200)
    assert "\n" not in found
    assert len(found) == MAX_LENGTH


def test_kernel_messages_since_a_time() -> None:
    records = [
        "5,0,0,-;Linux version 6.18\n",
        "4,712,41999999,-;before\n",
        "4,713,42000000,-,caller=T1;after; it continues\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n",
        "damaged",
    ]
    assert list(messages_since(records, 42.0)) == ["after; it continues"]


def test_oom_kills_are_counted_per_cgroup() -> None:
    assert [str(file) for file in event_files("0::/system.slice/run.scope\n")] == [
        "/sys/fs/cgroup/system.slice/run.scope/memory.events",
        "/sys/fs/cgroup/memory.events",
    ]
    version_1 = "9:name=systemd:/\n4:memory:/lxc/1\n0::/\n"
    assert str(event_files(version_1)[0]) == "/sys/fs/cgroup/memory/lxc/1/memory.oom_control"
    events = KernelEvents()
    assert isinstance(events.oom_kills(), int | None)
    assert events.messages() is None or isinstance(events.messages(), str)
