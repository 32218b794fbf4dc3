"""Cost of records: the time of the calls that record."""

import time

import pytest

from benchmarks.timed_records import RecordTimes, TimedQueryLog


def test_calls_are_measured_and_recorded() -> None:
    times = RecordTimes()
    log = TimedQueryLog(times)
    for query in range(1000):
        log.finish([query] * 10, [2] * 10, float(query))
    assert times.answers == 10_000
    assert len(log._finished.read()[0]) == times.answers
    assert 0 < times.recording_s < times.thread_cpu_s


def test_time_of_a_call_is_added() -> None:
    times = RecordTimes()
    for _ in range(2):
        with times.measured():
            time.sleep(0.01)
    assert times.recording_s >= 0.02


def test_share_is_relative_to_the_thread_without_records() -> None:
    assert RecordTimes(recording_s=1, thread_cpu_s=101).share == pytest.approx(0.01)
