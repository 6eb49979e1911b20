"""Readers of what other tools wrote: fabrics, telemetry, traces and logs of jobs, incidents,
tables."""
