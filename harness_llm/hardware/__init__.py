"""Facts about the machine: GPUs, PCI bus, NUMA, host settings, ECC, drivers. Nothing is changed."""
