"""Charts of device telemetry: power, clocks, temperature, utilisation and memory."""

from collections.abc import Iterator

from harness_llm.analysis.report.chart import Chart
from harness_llm.analysis.report.recorded_run import RecordedRun
from harness_llm.analysis.report.time_charts import Metric, lines

METRICS = (
    Metric("power_w", "Power", "W"),
    Metric("clock_mhz", "Clock", "MHz"),
    Metric("memory_clock_mhz", "Memory clock", "MHz"),
    Metric("temperature_c", "Temperature", "°C"),
    Metric("utilisation", "Utilisation", "%", 100, 100),
    Metric("memory_used_mib", "Memory in use", "GiB", 1 / 1024),
)


def device_charts(run: RecordedRun, group: str) -> Iterator[Chart]:
    """A chart for each metric that a device reports."""
    for metric in METRICS:
        chart = lines(run.devices, metric, run.end, group, "device")
        if not chart.empty:
            yield chart


def absent_metrics(run: RecordedRun) -> list[str]:
    """Names of the metrics that no device reports."""
    return [metric.topic for metric in METRICS if lines(run.devices, metric, run.end, "", "device").empty]


def throttle_text(run: RecordedRun) -> str:
    """Seconds of reduced clocks by reason and device."""
    found = [
        f"{device}: {reason} in {count} of its seconds"
        for device, reasons in run.throttled.items()
        for reason, count in reasons.items()
    ]
    return f"Reduced clocks: {'; '.join(found)}" if found else "No reduced clocks were reported"
