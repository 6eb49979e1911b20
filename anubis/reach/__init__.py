"""Executors run programs on nodes, orchestrators own nodes. Only this room starts anything."""
