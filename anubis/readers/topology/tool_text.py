"""Text from the bytes of a file or tool, with a remark if not all of it could be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from anubis.core.fabric import Remark
from anubis.text import files


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
