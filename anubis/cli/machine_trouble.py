"""The sentence for what this machine refuses to any program: rights, disk, memory, open files."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

NOT_YOURS = "this user may not look there; name another place, or ask its owner"
FULL = "free some space there, then run it again"
FAILING = "the disk or its server fails: see dmesg"
FILES = "allow more open files (ulimit -n), then run it again"
MEMORY = "free some memory, or allow this user more of it (ulimit -v), then run it again"
ADVICE = {
    errno.EACCES: NOT_YOURS,
    errno.EPERM: NOT_YOURS,
    errno.EROFS: "nothing can be written there: name another place",
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.ENOTDIR: "correct the path: a part of it is a file",
    errno.ENAMETOOLONG: "name it shorter",
    errno.ELOOP: "correct the links there, which lead in a circle",
    errno.EIO: FAILING,
    errno.ESTALE: FAILING,
    errno.EMFILE: FILES,
    errno.ENFILE: FILES,
    errno.ENOMEM: MEMORY,
    errno.EAGAIN: "this user may start no more processes: see ulimit -u",
}


def machine_sentence(error: Exception) -> str:
    """Return the sentence, or nothing for an error of another kind, which is a bug of ours."""
    if isinstance(error, MemoryError):
        return f"out of memory: {MEMORY}"
    if not isinstance(error, OSError):
        return ""
    if error.errno == errno.ENOENT and not error.filename:
        return _sentence_for_a_lost_folder(str(error.strerror))
    if not (advice := ADVICE.get(error.errno or 0)):
        return ""
    where = f'"{error.filename}": ' if error.filename else ""
    return f"{where}{str(error.strerror).lower()}: {advice}"


def _sentence_for_a_lost_folder(reason: str) -> str:
    if "temporary" in reason:
        return f"{reason}: free some space there, or name another folder in TMPDIR"
    with suppress(FileNotFoundError):
        Path.cwd()
        return ""
    return "the folder in which this was started is gone: change to another (cd)"
