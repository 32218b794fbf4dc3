"""Telemetry of this node's devices: power, clocks, temperature, memory, utilisation, throttling."""
