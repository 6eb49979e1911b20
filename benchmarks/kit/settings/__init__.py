"""What node_config reads: settings of GPUs, host and network, as text."""
