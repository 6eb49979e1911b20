"""Readers of what others wrote: fabrics, telemetry, traces and logs of jobs, incidents, tables."""
