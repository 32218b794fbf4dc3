"""What pairs of measurements say together."""

import json
from typing import Any

import pytest

from benchmarks.__main__ import PARTS
from benchmarks.measurement import HarnessMeasurement, Measurement, Pair, interval, summary
from benchmarks.offline import COLUMNS


def pair(harness: float, raw: float, *, harness_cpu: float = 10, raw_cpu: float = 10) -> Pair:
    """Both arms over 10 s, at so many tokens/s."""

    def of(rate: float, cpu: float) -> dict[str, Any]:
        return {
            "samples": 100,
            "tokens": int(rate * 10),
            "seconds": 10,
            "tokens_per_second": rate,
            "engine_cpu_s": cpu,
            "idle_cpu_s": 0,
            "others_cores": 0.5,
        }

    measured = HarnessMeasurement(**of(harness, harness_cpu), loadgen_cpu_s=1, loadgen_start_s=0.5)
    return Pair(measured, Measurement(**of(raw, raw_cpu)))


def test_ratio_is_harness_over_raw() -> None:
    assert pair(90, 100).ratio == pytest.approx(0.9)


def test_cpu_ratio_counts_the_engines_seconds_alone() -> None:
    assert pair(50, 100, harness_cpu=5, raw_cpu=10).cpu_ratio == pytest.approx(1.0)


def test_summary_takes_the_median_and_keeps_every_pair() -> None:
    pairs = [pair(80, 100), pair(99, 100), pair(101, 100)]
    document = json.loads(json.dumps(summary(pairs)))
    assert document["ratio"] == {"median": 0.99, "low": 0.8, "high": 1.01}
    assert [p["raw"]["tokens_per_second"] for p in document["pairs"]] == [100, 100, 100]
    assert document["pairs"][0]["ratio"] == 0.8


def test_every_column_can_be_shown() -> None:
    row = {name: text(pair(4321, 4000)) for name, text in COLUMNS.items()}
    assert row["tokens/s"] == "4,321 4,000"
    assert row["ratio"] == "1.080"


def test_an_interval_narrows_with_more_values() -> None:
    values = [90.0, 95, 100, 105, 110]
    few, many = interval(values), interval(values * 20)
    assert few["median"] == many["median"] == 100
    assert few["low"] < many["low"] <= 100 <= many["high"] < few["high"]
    assert interval([7.0]) == {"median": 7.0, "low": 7.0, "high": 7.0}


def test_every_part_says_what_it_is() -> None:
    assert all(part.description and part.repeats and part.seconds for part in PARTS.values())
