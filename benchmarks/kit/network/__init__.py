"""Adapters and the ways between hosts: ports, counters, perftest, and what carried data."""
