"""Round trip of a message to another process: lower bound of the overhead of a harness with replica processes.

Run as `python -m benchmarks.hop QUERIES_PER_S SECONDS HERE THERE`; HERE and THERE are cores. Prints one JSON object.
"""

import json
import os
import select
import socket
import subprocess
import sys
import time

import numpy as np

PROMPT = bytes(4 * 294)  # the published mean length of llama2-70b


def measure_hop(qps: float, *, seconds: float, here: int, there: int) -> tuple[float, float]:
    """Measure the round trip over a bare socket between two cores, from the due time: p50 and p99 in ms."""
    words = (str(word) for word in (qps, seconds, here, there))
    done = subprocess.run([sys.executable, "-m", __name__, *words], check=True, stdout=subprocess.PIPE)
    p50, p99 = json.loads(done.stdout)
    return p50, p99


def _echo(line: socket.socket) -> None:
    waiting = select.poll()
    waiting.register(line, select.POLLIN)
    while True:
        waiting.poll()
        message = line.recv(len(PROMPT))
        if not message:
            return
        line.send(message)


def _send(line: socket.socket, qps: float, seconds: float) -> list[float]:
    """Send one message at a time, at random times as LoadGen in Server; return the seconds of each round trip."""
    gaps = np.random.default_rng(0).exponential(1 / qps, round(qps * seconds))
    waiting, took = select.poll(), []
    waiting.register(line, select.POLLIN)
    for due in time.perf_counter() + np.cumsum(gaps):
        if (early := due - time.perf_counter()) > 0:
            time.sleep(early)
        line.send(PROMPT)
        waiting.poll()
        line.recv(len(PROMPT))
        took.append(time.perf_counter() - due)
    return took


def main() -> None:
    """Fork the echo process, send, and print the percentiles."""
    qps, seconds = map(float, sys.argv[1:3])
    here, there = map(int, sys.argv[3:5])
    mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        mine.close()
        os.sched_setaffinity(0, {there})
        _echo(other)
        os._exit(0)
    other.close()
    os.sched_setaffinity(0, {here})
    took = np.percentile(_send(mine, qps, seconds), [50, 99]) * 1000
    sys.stdout.write(json.dumps(took.tolist()))


if __name__ == "__main__":
    main()
