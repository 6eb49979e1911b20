"""Text from the bytes of a file or tool, whatever editor or machine they came from."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import replace

from anubis.core.fabric import Remark

_MARKS = (  # the longer ones first: UTF-32's begins like UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
SAMPLED = 4000  # bytes that tell an encoding


def decode(data: bytes) -> tuple[str, list[Remark]]:
    """Return the text with plain line ends; what cannot be read in it becomes a replacement
    mark."""
    encoding = encoding_of(data)
    text = data.decode(encoding, errors="replace")
    findings = []
    if "\ufffd" in text:
        line = text[: text.index("\ufffd")].count("\n") + 1
        sentence = f"not all of it is {encoding} text"
        findings.append(Remark(kind="encoding", sentence=sentence, line=line))
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", ""), findings


def locate(remarks: Iterable[Remark], where: str) -> list[Remark]:
    return [replace(remark, sentence=f"in {where}: {remark.sentence}") for remark in remarks]


def encoding_of(data: bytes) -> str:
    """Return the encoding by its mark, or by the first bytes: UTF-16 of mostly plain characters has
    a zero in every other one."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding
    sample = data[:SAMPLED]
    for encoding, zeros in (("utf-16-le", sample[1::2]), ("utf-16-be", sample[::2])):
        if len(sample) > 3 and zeros.count(0) > len(zeros) * 0.9:
            return encoding
    return "utf-8"
