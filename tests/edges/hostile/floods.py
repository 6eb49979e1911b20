"""Writes 1 GB to stdout where one JSON document is expected."""

import sys

for _ in range(1024):
    sys.stdout.write("x" * (1 << 20))
