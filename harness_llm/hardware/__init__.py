"""Facts about the machine: GPUs, PCI bus, NUMA, host settings, ECC, drivers, telemetry; locks and CPU binding."""
