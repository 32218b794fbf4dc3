"""The two arms: the fleet behind LoadGen, and LLM.generate in a process of its own. Both keep their engine warm."""

import datetime as dt
import os
import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import zmq

from benchmarks.measurement import HarnessMeasurement, Measurement
from benchmarks.raw import RawSpec
from harness_llm.cell import Bench, run_cell
from harness_llm.errors import RunFailed
from harness_llm.fleet.local import replica_environment, replica_lost, split_cpus
from harness_llm.processes import Child, Exit, start, watch


def cpu_seconds(child: Child) -> float:
    """CPU time that a running child has used."""
    used = psutil.Process(child.process.pid).cpu_times()
    return float(used.user + used.system)


def _loadgen_cpu_seconds() -> float:
    """CPU time of children that have ended: while the bench runs, LoadGen's processes alone."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _machine_cpu_seconds() -> float:
    """CPU time that the whole machine has used."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait)
