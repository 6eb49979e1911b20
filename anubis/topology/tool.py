"""Runs a program of infiniband-diags that reads the fabric of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from anubis.core.errors import TopologyError
from anubis.topology.text import decode

LIVE_S = 300.0


@dataclass(frozen=True, kw_only=True)
class ToolOutput:
    code: int
    out: bytes
    err: str

    def refusal(self, command: Sequence[str], option: str) -> TopologyError:
        reason = self.err.strip().split("\n")[-1] or "no reason"
        return TopologyError(
            f'"{command[0]}" ended with code {self.code}: {reason}; '
            f"run it as root on a machine of the fabric, or give {option} FILE"
        )


def ask(command: Sequence[str], option: str) -> ToolOutput:
    """`option` is the command-line option that takes recorded output instead."""
    try:
        process = subprocess.run(command, capture_output=True, timeout=LIVE_S, check=False)
    except FileNotFoundError:
        raise TopologyError(
            f'"{command[0]}" is not installed: install infiniband-diags, or give {option} FILE'
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TopologyError(f'"{command[0]}" did not answer: {error}') from None
    return ToolOutput(code=process.returncode, out=process.stdout, err=decode(process.stderr)[0])
