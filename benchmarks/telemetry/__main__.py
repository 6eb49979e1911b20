"""Starts the agent: `python3 benchmarks/telemetry`, with its options."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # beside the kit, as for a program

from telemetry.agent import main  # noqa: E402 - the path comes first

main()
