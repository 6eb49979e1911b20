"""The GPUs of a machine: their drivers, what they report, and what their vendors promise."""
