"""Writes 1 GB to stdout instead of one JSON document."""

import sys

for _ in range(1024):
    sys.stdout.write("x" * (1 << 20))
