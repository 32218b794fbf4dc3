"""A node with accelerators for software that reads it: its own /sys, /dev and vendor's programs in a mount namespace.

Only hardware is made up. The kernel's files are an overlay over the real /sys, so that everything else in it is this
machine's; device nodes have the numbers of /dev/null. Containers get the same /sys by DOCKER_ARGS.
"""

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dockerd import PATH, run
from fake_node import nvidia_gpu, nvidia_smi, write_node
from machines import write_root

from harness_llm.hardware.gpus import Gpu, load_gpus
from harness_llm.paths import CHECKOUT, Workspace

# A daemon without CAP_SYS_RESOURCE cannot raise memlock above its hard limit; no process here locks memory for DMA.
_MEMLOCK = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
DOCKER_ARGS = f"--mount type=bind,source=/sys,target=/sys,readonly --ulimit memlock={_MEMLOCK}:{_MEMLOCK}"
_PROGRAMS = Path(__file__).parent / "hardware"
_RENDER = 992  # the group of AMD's device files
_FIRST_BUS = 0x18  # of fake_node's accelerators
_MIB = {"h100": 81559, "h200": 143771}


@dataclass(frozen=True)
class Node:
    """What is unusual about a node.

    Attributes:
        nvidia_smi: fields of every GPU.
        processes: that nvidia-smi lists.
        files: below /sys.
    """

    nvidia_smi: Mapping[str, object] = field(default_factory=dict)
    processes: Sequence[Mapping[str, object]] = ()
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Machine:
    """A mount namespace that a sleeping process holds; `plug` puts accelerators into it."""

    pid: int
    folder: Path

    @property
    def enter(self) -> tuple[str, ...]:
        """The words before a command of root's that is to run there."""
        return ("nsenter", "--target", str(self.pid), "--mount", "--")

    @property
    def programs(self) -> Path:
        """The vendor's programs; on the PATH of commands and of the Docker daemon."""
        return self.folder / "bin"

    def plug(self, gpu_name: str, count: int = 8, node: "Node | None" = None) -> None:
        """Replace the accelerators by `count` of `gpu_name`, with the other facts of `node`."""
        gpu, node = load_gpus(Workspace(CHECKOUT))[gpu_name], node or Node()
        shutil.rmtree(self.folder / "node", ignore_errors=True)
        (self.folder / "bin" / "nvidia-smi").unlink(missing_ok=True)
        write_node(self.folder / "node", gpu.pci[0], count)
        write_root(self.folder / "node/sys", {**_numa(), **_functions(gpu, count), **node.files})
        if gpu.platform == "cuda":
            vendor, device = gpu.pci[0].upper().split(":")
            facts = {"name": gpu.name, "memory.total": _MIB[gpu_name], "memory.free": _MIB[gpu_name] - 600}
            facts["pci.device_id"] = f"0x{device}{vendor}"
            gpus = [nvidia_gpu(n) | facts | node.nvidia_smi for n in range(count)]
            nvidia_smi(self.programs, gpus, node.processes, python="python3")
        run(*self.enter, "sh", "-euc", _PLUG, "plug", self.folder)


# An overlay over /sys hides what is mounted below it: the control groups are shown again.
_PLUG = """
! mountpoint -q "$1/cgroup" || umount --lazy --recursive /sys "$1/cgroup"
mount --rbind /sys/fs/cgroup "$1/cgroup"
mount -t overlay overlay -o "lowerdir=$1/node/sys:/sys" /sys
mount --rbind "$1/cgroup" /sys/fs/cgroup
"""
_DEVICES = f"""
mount -t tmpfs -o mode=755 tmpfs "$1/dev"
cd /dev
cp --archive null zero full random urandom tty ptmx fd stdin stdout stderr "$1/dev"
mkdir "$1/dev/pts" "$1/dev/shm" "$1/dev/dri"
mount --rbind /dev/pts "$1/dev/pts"
mount --rbind /dev/shm "$1/dev/shm"
cd "$1/dev"
for name in kfd dri/renderD128 dri/renderD129 dri/renderD130 dri/renderD131 dri/renderD132 dri/renderD133 \
            dri/renderD134 dri/renderD135; do
    mknod --mode=660 "$name" c 1 3
    chown 0:{_RENDER} "$name"
done
for name in nvidiactl nvidia-uvm nvidia0 nvidia1 nvidia2 nvidia3 nvidia4 nvidia5 nvidia6 nvidia7; do
    mknod --mode=666 "$name" c 1 3
done
mount --rbind "$1/dev" /dev
echo ready
exec cat
"""


@contextmanager
def make_machine() -> Iterator[Machine]:
    """A machine without accelerators; its mounts end with the block."""
    with tempfile.TemporaryDirectory(prefix="hl-node-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("bin", "dev", "cgroup"):
            (folder / part).mkdir()
        shutil.copy(_PROGRAMS / "nvidia-container-runtime-hook", folder / "bin")
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", _DEVICES, "node", name]
        with subprocess.Popen(
            command, env={"PATH": PATH}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdout
            assert holder.stdout.readline() == "ready\n"
            yield Machine(holder.pid, folder)
            holder.communicate()  # its standard input ends


def function(number: int, name: str) -> str:
    """The file `name` of an accelerator, below /sys."""
    return f"bus/pci/devices/0000:{_FIRST_BUS + number:02x}:00.0/{name}"


def _numa() -> dict[str, str]:
    """Two NUMA nodes of half the CPUs each."""
    cpus = sorted(os.sched_getaffinity(0))
    half = len(cpus) // 2
    lists = {node: ",".join(map(str, own)) for node, own in enumerate((cpus[:half], cpus[half:]))}
    files = {f"devices/system/node/node{node}/cpulist": text for node, text in lists.items()}
    return files | {f"devices/system/node/{name}": "0-1" for name in ("has_memory", "online", "possible")}


def _functions(gpu: Gpu, count: int) -> dict[str, str]:
    """What fake_node does not write of the accelerators: link, NUMA node, memory, and AMD's table of them."""
    link = {"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"}
    amd = {"mem_info_vram_total": str(gpu.memory_gb * 2**30)} if gpu.platform == "rocm" else {}
    files = {
        function(number, name): content
        for number in range(count)
        for name, content in {**link, **amd, "numa_node": str(number * 2 // count)}.items()
    }
    return files | (_kfd(count) if gpu.platform == "rocm" else {})


def _kfd(count: int) -> dict[str, str]:
    """The nodes of the KFD driver: two CPUs, then the accelerators."""
    places = [0, 0, *((_FIRST_BUS + number) << 8 for number in range(count))]
    return {
        f"class/kfd/kfd/topology/nodes/{number}/properties": f"simd_count {1216 if place else 0}\n"
        f"domain 0\nlocation_id {place}"
        for number, place in enumerate(places)
    }
