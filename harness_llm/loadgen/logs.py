"""What LoadGen wrote: mlperf_log_detail.txt (facts of a run) and mlperf_log_accuracy.json (its answers)."""

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
# What LoadGen infers where it counts no tokens; in other scenarios nothing (loadgen/results.cc:828-850).
INFERRED_TOKEN_RATE = {
    "Offline": "result_inferred_tokens_per_second",
    "Server": "result_inferred_completed_tokens_per_second",
}


@dataclass(frozen=True)
class DetailLog:
    """One mlperf_log_detail.txt; a property of a key that the log lacks or fills wrongly raises ConfigError.

    Attributes:
        path: the file.
        values: the last value of each key.
        errors: what LoadGen logged as errors, in order.
        warnings: what LoadGen logged as warnings, in order.
    """

    path: Path
    values: Mapping[str, Any]
    errors: list[str]
    warnings: list[str]

    def get(self, key: str, default: Any = None) -> Any:
        """The last value of `key`, or `default`."""
        return self.values.get(key, default)

    def __getitem__(self, key: str) -> Any:
        if key not in self.values:
            raise ConfigError(
                "a LoadGen log lacks a key",
                where=str(self.path),
                expected=key,
                hint="the run may have ended before LoadGen wrote its results; run it again",
            )
        return self.values[key]

    def number(self, key: str) -> float:
        """The last value of `key`, which has to be a number."""
        value = self[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._odd(key, value, "a number")
        return value

    def flag(self, key: str) -> bool:
        """The last value of `key`, which has to be true or false."""
        value = self[key]
        if not isinstance(value, bool):
            raise self._odd(key, value, "true or false")
        return value

    def _odd(self, key: str, value: object, expected: str) -> ConfigError:
        return ConfigError(
            "a value of a LoadGen log is not what LoadGen writes there",
            where=str(self.path),
            expected=f"{key}: {expected}",
            found=repr(value),
            hint="take the log from the run's directory",
        )

    @property
    def loadgen_version(self) -> str:
        """For example `6.0.17`, without the commit that follows it."""
        return str(self["loadgen_version"]).split(" ", 1)[0]

    @property
    def scenario(self) -> str:
        """LoadGen's scenario; an Interactive run says Server."""
        return str(self["effective_scenario"])

    @property
    def mode(self) -> str:
        """`PerformanceOnly` or `AccuracyOnly`."""
        return str(self["effective_test_mode"])

    @property
    def valid(self) -> bool:
        """Whether LoadGen called the result VALID; an accuracy run has no such verdict."""
        return bool(self.get("result_validity") == "VALID")

    @property
    def invalid_reasons(self) -> list[str]:
        """Why the result is not VALID, in LoadGen's words; which bounds were missed where it gives none."""
        met = ("result_perf_constraints_met", "result_min_duration_met", "result_min_queries_met")
        missed = [f"{key} is false" for key in (*met, "early_stopping_met") if self.get(key) is False]
        reason = " ".join(str(self.get("result_invalid_reason", "")).split())
        return [reason, *missed] if reason else missed

    @property
    def seeds(self) -> dict[str, int]:
        """The seeds in force, by the names that the rules of a round use."""
        return {name: int(self.number(f"effective_{name}")) for name in _SEEDS}

    @property
    def token_rate(self) -> str | None:
        """The key of `tokens_per_second`; None where LoadGen gives no such rate."""
        return (_TOKEN_RATE if self.use_token_latencies else INFERRED_TOKEN_RATE).get(self.scenario)

    @property
    def tokens_per_second(self) -> float | None:
        """The metric of an LLM: completed tokens per second in Server, tokens per second in Offline.

        Where LoadGen counts no tokens, those that it infers from the samples (gptj); None where it infers none.
        """
        return self.number(self.token_rate) if self.token_rate else None

    @property
    def samples_per_second(self) -> float:
        """Completed samples per second."""
        if self.scenario not in _SAMPLE_RATE:
            raise self._odd("effective_scenario", self.scenario, " or ".join(_SAMPLE_RATE))
        return self.number(_SAMPLE_RATE[self.scenario])

    @property
    def p99_ttft_ms(self) -> float | None:
        """99th percentile of the time to first token in ms; None in Offline, which has none."""
        return self.ttft_ms(99)

    @property
    def p99_tpot_ms(self) -> float | None:
        """99th percentile of the time per output token in ms; None in Offline, which has none."""
        return self.tpot_ms(99)

    def ttft_ms(self, percentile: float) -> float | None:
        """The time to first token in ms, at percentile 50, 90, 95, 97, 99 or 99.9; None in Offline, which has none."""
        return self._ms(f"result_first_token_{percentile:.2f}_percentile_latency_ns")

    def tpot_ms(self, percentile: float) -> float | None:
        """The time per output token in ms, likewise."""
        return self._ms(f"result_time_per_output_token_{percentile:.2f}_percentile_ns")

    @property
    def latency_percentiles_ms(self) -> dict[float, float]:
        """Latency of a whole answer in ms by percentile: 50, 90, 95, 97, 99, 99.9."""
        end = "_percentile_latency_ns"
        keys = [k for k in self.values if k.startswith("result_") and k.endswith(end) and k[7].isdigit()]
        return {float(k[7 : -len(end)]): self.number(k) / _NS_PER_MS for k in keys}

    @property
    def requested_ttft_ms(self) -> float | None:
        """The TTFT limit that LoadGen judged by; None where it judged by none."""
        return self._ms("requested_server_ttft_latency")

    @property
    def requested_tpot_ms(self) -> float | None:
        """The TPOT limit that LoadGen judged by; None where it judged by none."""
        return self._ms("requested_server_tpot_latency")

    @property
    def target_qps(self) -> float:
        """Queries per second issued (Server) or expected (Offline)."""
        return self.number("effective_target_qps")

    @property
    def performance_sample_count(self) -> int:
        """Samples that a performance run draws from."""
        return int(self.number("effective_performance_sample_count"))

    @property
    def accuracy_sample_count(self) -> int:
        """Samples of an accuracy run; LoadGen before 6.0 tells only the size of the library."""
        own = "effective_accuracy_sample_count"
        return int(self.number(own if self.get(own, 0) != 0 else "qsl_reported_total_count"))

    @property
    def samples_per_query(self) -> int:
        """Samples in one query as planned; Offline issues `generated_samples_per_query` of them."""
        return int(self.number("effective_samples_per_query"))

    @property
    def query_count(self) -> int:
        """Queries completed in a performance run."""
        return int(self.number("result_query_count"))

    @property
    def min_query_count(self) -> int:
        """The setting that the round demands."""
        return int(self.number("effective_min_query_count"))

    @property
    def min_duration_ms(self) -> int:
        """The setting that the round demands, not the time the run took."""
        return int(self.number("effective_min_duration_ms"))

    @property
    def duration_s(self) -> float:
        """Wall time from the first query issued to the last answer."""
        return (self._instant("power_end") - self._instant("power_begin")).total_seconds()

    @property
    def early_stopping_met(self) -> bool:
        """Whether enough queries ran for the percentiles to be trusted."""
        return self.flag("early_stopping_met")

    @property
    def use_token_latencies(self) -> bool:
        """Whether LoadGen measured tokens; it says nothing of them where it does not."""
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
            raise self._odd(key, self[key], "MM-DD-YYYY HH:MM:SS.mmm") from error


def parse_detail(path: Path) -> DetailLog:
    """Read a mlperf_log_detail.txt.

    Raises:
        ConfigError: the file is missing or empty, or a line of it is cut or no LoadGen message.
    """
    values: dict[str, Any] = {}
    errors: list[str] = []
    warnings: list[str] = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        message = _message(line, f"{path}:{number}")
        values[message.key] = message.value
        if message.metadata.is_error:
            errors.append(message.spoken)
        if message.metadata.is_warning:
            warnings.append(message.spoken)
    if not values:
        raise ConfigError("a LoadGen log is empty", where=str(path))
    return DetailLog(path, values, errors, warnings)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("a LoadGen log cannot be read", where=str(path), found=str(error)) from error


class _Metadata(msgspec.Struct):
    is_error: bool
    is_warning: bool


class _Message(msgspec.Struct):
    key: str
    value: Any
    metadata: _Metadata

    @property
    def spoken(self) -> str:
        """For a person."""
        return f"{self.key}: {self.value}"


_decode = msgspec.json.Decoder(_Message).decode


def _message(line: str, where: str) -> _Message:
    try:
        if line.startswith(_PREFIX):
            return _decode(line.removeprefix(_PREFIX))
    except msgspec.DecodeError:
        pass
    raise ConfigError(
        "a line of a LoadGen log is cut or no LoadGen message",
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
        token_count: how many tokens the SUT said it made; None in a log without token latencies.
        first: the ids reported as first token; None where LoadGen asks for none, as in Offline.
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
    """Read the answers in a mlperf_log_accuracy.json, in the order they were completed.

    Raises:
        ConfigError: the file is missing, was cut, or holds no int32 ids.
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
        raise ConfigError(
            "an accuracy log cannot be read",
            where=str(path),
            expected="the whole file that LoadGen wrote, with little-endian int32 ids",
            found=str(error),
            hint="a submission holds a truncated copy; the original lies in the run's directory",
        ) from error


def _ids(data: str) -> TokenIds:
    return np.frombuffer(bytes.fromhex(data), dtype="<i4")
