"""Facts about the machine: GPUs, PCI bus, NUMA, host settings, ECC, drivers; locks and CPU binding."""
