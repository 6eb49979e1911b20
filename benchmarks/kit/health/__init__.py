"""What node_health reads and reports: GPUs, ports, the kernel log, and the host around them."""
