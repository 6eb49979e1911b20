"""Calls of the programs of infiniband-diags that read the fabric of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from signal import Signals

from anubis.core.errors import TopologyError
from anubis.core.fabric import Remark
from anubis.text import files

LIVE_S = 300.0  # ibnetdiscover asks thousands of ports one by one
TRIES = 2  # a crash while the fabric changes need not repeat


@dataclass(frozen=True, kw_only=True)
class ToolOutput:
    code: int
    out: bytes
    err: str

    def refusal(self, command: Sequence[str], option: str) -> TopologyError:
        reason = self.err.strip().split("\n")[-1] or "no reason given"
        killed = self.code < 0
        end = (
            f"was killed by {Signals(-self.code).name}"
            if killed
            else f"ended with code {self.code}"
        )
        return TopologyError(
            f'"{command[0]}" {end}: {reason}; '
            f"run it as root on a machine of the fabric, or give {option} FILE"
        )


def ask(command: Sequence[str], option: str) -> ToolOutput:
    """Run a tool; `option` is the command-line option that takes recorded output instead.

    A tool that crashes is run once more: it only reads.
    """
    try:
        for _ in range(TRIES):
            process = subprocess.run(command, capture_output=True, timeout=LIVE_S, check=False)
            if process.returncode >= 0:
                break
    except FileNotFoundError:
        raise TopologyError(
            f'"{command[0]}" is not installed: install infiniband-diags, or give {option} FILE'
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TopologyError(f'"{command[0]}" did not answer: {error}') from None
    return ToolOutput(code=process.returncode, out=process.stdout, err=decode(process.stderr)[0])


def decode(data: bytes) -> tuple[str, list[Remark]]:
    text = files.decode(data)
    findings = []
    if "\ufffd" in text:
        line = text[: text.index("\ufffd")].count("\n") + 1
        sentence = f"not all of it is {files.encoding_of(data)} text"
        findings.append(Remark(kind="encoding", sentence=sentence, line=line))
    return text, findings


def locate(remarks: Iterable[Remark], where: str) -> list[Remark]:
    return [replace(remark, sentence=f"in {where}: {remark.sentence}") for remark in remarks]
