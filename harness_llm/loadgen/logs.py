"""Parsers of LoadGen's logs: mlperf_log_detail.txt (settings and results) and mlperf_log_accuracy.json (answers)."""

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness_llm.errors import ConfigError

DETAIL = "mlperf_log_detail.txt"
SUMMARY = "mlperf_log_summary.txt"
ACCURACY = "mlperf_log_accuracy.json"

TokenIds = NDArray[np.int32]

_PREFIX = ":::MLLOG "
_NS_PER_MS = 1e6
_SEEDS = ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed")
_SAMPLE_RATE = {
    "Offline": "result_samples_per_second",
    "Server": "result_completed_samples_per_sec",
    "SingleStream": "result_qps_without_loadgen_overhead",
}
_TOKEN_RATE = {
    "Offline": "result_tokens_per_second",
    "Server": "result_completed_tokens_per_second",
    "SingleStream": "result_completed_tokens_per_second",
}
# Inferred by LoadGen if it counts no tokens; in other scenarios, none (loadgen/results.cc:828-850).
INFERRED_TOKEN_RATE = {
    "Offline": "result_inferred_tokens_per_second",
    "Server": "result_inferred_completed_tokens_per_second",
}


class DamagedLog(ConfigError):
    """A log that is missing, incomplete or not LoadGen's."""


@dataclass(frozen=True)
class DetailLog:
    """One mlperf_log_detail.txt; a property raises DamagedLog if its key is missing or has a wrong type.

    Attributes:
        path: the file.
        values: the last value of each key.
        errors: LoadGen's error messages, in order.
        warnings: LoadGen's warnings, in order.
    """

    path: Path
    values: Mapping[str, Any]
    errors: list[str]
    warnings: list[str]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the last value of `key`, or `default`."""
        return self.values.get(key, default)

    def __getitem__(self, key: str) -> Any:
        if key not in self.values:
            raise DamagedLog(
                "missing key in a LoadGen log",
                where=str(self.path),
                expected=key,
                hint="the run may have ended before LoadGen wrote its results; repeat the run",
            )
        return self.values[key]

    def number(self, key: str) -> float:
        """Return the last value of `key`, which must be a number."""
        value = self[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._wrong_value(key, value, "a number")
        return value

    def flag(self, key: str) -> bool:
        """Return the last value of `key`, which must be a boolean."""
        value = self[key]
        if not isinstance(value, bool):
            raise self._wrong_value(key, value, "true or false")
        return value

    def _wrong_value(self, key: str, value: object, expected: str) -> DamagedLog:
        return DamagedLog(
            "wrong value in a LoadGen log",
            where=str(self.path),
            expected=f"{key}: {expected}",
            found=repr(value),
            hint="use the log in the run's directory",
        )

    @property
    def loadgen_version(self) -> str:
        """For example `6.0.17`, without the commit that follows it."""
        return str(self["loadgen_version"]).split(" ", 1)[0]

    @property
    def scenario(self) -> str:
        """LoadGen's scenario; Server for an Interactive run."""
        return str(self["effective_scenario"])

    @property
    def mode(self) -> str:
        """`PerformanceOnly` or `AccuracyOnly`."""
        return str(self["effective_test_mode"])

    @property
    def valid(self) -> bool:
        """Whether LoadGen judged the result VALID; false for an accuracy run, which LoadGen does not judge."""
        return bool(self.get("result_validity") == "VALID")

    @property
    def invalid_reasons(self) -> list[str]:
        """Why LoadGen judged the result INVALID: its sentence, or the result keys that are false.

        The sentence covers latencies, duration and queries; early stopping, which fails if a latency does, has none
        (loadgen/results.cc:672-695).
        """
        latencies, *others = "result_perf_constraints_met", "result_min_duration_met", "result_min_queries_met"
        missed = [key for key in (latencies, *others) if self.get(key) is False]
        reason = " ".join(str(self.get("result_invalid_reason", "")).split())
        stated = [reason] if reason else [f"{key} is false" for key in missed]
        early = self.get("early_stopping_met") is False and latencies not in missed
        return [*stated, *(["early_stopping_met is false"] if early else [])]

    @property
    def seeds(self) -> dict[str, int]:
        """The effective seeds, by their names in the rules of a round."""
        return {name: int(self.number(f"effective_{name}")) for name in _SEEDS}

    @property
    def token_rate(self) -> str | None:
        """The key of `tokens_per_second`; None if LoadGen reports no such rate."""
        return (_TOKEN_RATE if self.use_token_latencies else INFERRED_TOKEN_RATE).get(self.scenario)

    @property
    def tokens_per_second(self) -> float | None:
        """The metric of an LLM: completed tokens per second in Server, tokens per second in Offline.

        If LoadGen counts no tokens, those inferred from the samples (gptj); None if it infers none.
        """
        return self.number(self.token_rate) if self.token_rate else None

    @property
    def samples_per_second(self) -> float:
        """Completed samples per second."""
        if self.scenario not in _SAMPLE_RATE:
            raise self._wrong_value("effective_scenario", self.scenario, " or ".join(_SAMPLE_RATE))
        return self.number(_SAMPLE_RATE[self.scenario])

    @property
    def p99_ttft_ms(self) -> float | None:
        """99th percentile of the time to first token in ms; None in Offline."""
        return self.ttft_ms(99)

    @property
    def p99_tpot_ms(self) -> float | None:
        """99th percentile of the time per output token in ms; None in Offline."""
        return self.tpot_ms(99)

    def ttft_ms(self, percentile: float) -> float | None:
        """Return the time to first token in ms at percentile 50, 90, 95, 97, 99 or 99.9; None in Offline."""
        return self._ms(f"result_first_token_{percentile:.2f}_percentile_latency_ns")

    def tpot_ms(self, percentile: float) -> float | None:
        """Return the time per output token in ms, likewise."""
        return self._ms(f"result_time_per_output_token_{percentile:.2f}_percentile_ns")

    @property
    def latency_percentiles_ms(self) -> dict[float, float]:
        """Latency of a whole answer in ms by percentile: 50, 90, 95, 97, 99, 99.9."""
        end = "_percentile_latency_ns"
        keys = [k for k in self.values if k.startswith("result_") and k.endswith(end) and k[7].isdigit()]
        return {float(k[7 : -len(end)]): self.number(k) / _NS_PER_MS for k in keys}

    @property
    def requested_ttft_ms(self) -> float | None:
        """LoadGen's TTFT limit; None if it has none."""
        return self._ms("requested_server_ttft_latency")

    @property
    def requested_tpot_ms(self) -> float | None:
        """LoadGen's TPOT limit; None if it has none."""
        return self._ms("requested_server_tpot_latency")

    @property
    def target_latency_ms(self) -> float:
        """LoadGen's limit on the latency of complete answers in ms; 0 if it limits TTFT and TPOT instead."""
        return self.number("effective_target_latency_ns") / _NS_PER_MS

    @property
    def target_qps(self) -> float:
        """Queries per second issued (Server) or expected (Offline)."""
        return self.number("effective_target_qps")

    @property
    def performance_sample_count(self) -> int:
        """Number of samples from which a performance run draws."""
        return int(self.number("effective_performance_sample_count"))

    @property
    def accuracy_sample_count(self) -> int:
        """Samples of an accuracy run; LoadGen before 6.0 logs only the size of the sample library."""
        own = "effective_accuracy_sample_count"
        return int(self.number(own if own in self.values else "qsl_reported_total_count"))

    @property
    def samples_per_query(self) -> int:
        """Planned samples per query; Offline issues `generated_samples_per_query` of them."""
        return int(self.number("effective_samples_per_query"))

    @property
    def query_count(self) -> int:
        """Queries completed in a performance run."""
        return int(self.number("result_query_count"))

    @property
    def min_query_count(self) -> int:
        """The setting, given by the round."""
        return int(self.number("effective_min_query_count"))

    @property
    def min_duration_ms(self) -> int:
        """The setting, given by the round; not the duration of the run."""
        return int(self.number("effective_min_duration_ms"))

    @property
    def duration_s(self) -> float:
        """Wall time from the first query issued to the last answer."""
        return (self._instant("power_end") - self._instant("power_begin")).total_seconds()

    @property
    def early_stopping_met(self) -> bool:
        """Whether the number of queries suffices for the percentiles."""
        return self.flag("early_stopping_met")

    @property
    def use_token_latencies(self) -> bool:
        """Whether LoadGen measured tokens; the key is missing if not."""
        key = "requested_use_token_latencies"
        return key in self.values and self.flag(key)

    @property
    def sample_concatenate_permutation(self) -> bool:
        """Whether every sample is issued equally often."""
        return self.flag("effective_sample_concatenate_permutation")

    def _ms(self, key: str) -> float | None:
        return self.number(key) / _NS_PER_MS if key in self.values else None

    def _instant(self, key: str) -> dt.datetime:
        try:
            return dt.datetime.strptime(self[key], "%m-%d-%Y %H:%M:%S.%f").replace(tzinfo=dt.UTC)
        except (TypeError, ValueError) as error:
            raise self._wrong_value(key, self[key], "MM-DD-YYYY HH:MM:SS.mmm") from error


def parse_detail(path: Path) -> DetailLog:
    """Read a mlperf_log_detail.txt.

    Raises:
        DamagedLog: the file is missing or empty, or a line is incomplete or no LoadGen message.
    """
    values: dict[str, Any] = {}
    errors: list[str] = []
    warnings: list[str] = []
    for number, line in enumerate(_text(path).rstrip().splitlines(), start=1):
        message = _message(line, f"{path}:{number}")
        values[message.key] = message.value
        if message.metadata.is_error:
            errors.append(message.text)
        if message.metadata.is_warning:
            warnings.append(message.text)
    if not values:
        raise DamagedLog("empty LoadGen log", where=str(path))
    return DetailLog(path, values, errors, warnings)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedLog("unreadable LoadGen log", where=str(path), found=str(error)) from error


class _Metadata(msgspec.Struct):
    is_error: bool
    is_warning: bool


class _Message(msgspec.Struct):
    key: str
    value: Any
    metadata: _Metadata

    @property
    def text(self) -> str:
        """Key and value."""
        return f"{self.key}: {self.value}"


_decode = msgspec.json.Decoder(_Message).decode


def _message(line: str, where: str) -> _Message:
    try:
        if line.startswith(_PREFIX):
            return _decode(line.removeprefix(_PREFIX))
    except msgspec.DecodeError:
        pass
    raise DamagedLog(
        "invalid line in a LoadGen log",
        where=where,
        expected=":::MLLOG {json}",
        found=line[:80],
    )


@dataclass(frozen=True)
class Answer:
    """One entry of mlperf_log_accuracy.json.

    Attributes:
        seq_id: the order of issue.
        qsl_idx: the sample in the data set.
        ids: the token ids of the answer, int32.
        token_count: number of tokens that the SUT reported; None in a log without token latencies.
        first: the ids reported as first token; None in scenarios without first tokens, as Offline.
    """

    seq_id: int
    qsl_idx: int
    ids: TokenIds
    token_count: int | None
    first: TokenIds | None


class _Entry(msgspec.Struct):
    seq_id: int
    qsl_idx: int
    data: str
    token_count: int | None = None
    token_data: str | None = None


def read_accuracy_log(path: Path) -> list[Answer]:
    """Read the answers in a mlperf_log_accuracy.json, in order of completion.

    Raises:
        DamagedLog: the file is missing or truncated, or contains no int32 ids.
    """
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=list[_Entry])
        return [
            Answer(
                e.seq_id,
                e.qsl_idx,
                _ids(e.data),
                e.token_count,
                None if e.token_data is None else _ids(e.token_data),
            )
            for e in entries
        ]
    except (OSError, ValueError) as error:
        raise DamagedLog(
            "unreadable accuracy log",
            where=str(path),
            expected="the whole file that LoadGen wrote, with little-endian int32 ids",
            found=str(error),
            hint="a submission contains a truncated copy; the original is in the run's directory",
        ) from error


def _ids(data: str) -> TokenIds:
    return np.frombuffer(bytes.fromhex(data), dtype="<i4")
