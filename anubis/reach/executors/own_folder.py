"""Folders that only we and root may change, on machines where others have accounts.

A folder of mode 0700 is not enough: a user who may write to a folder above it can put another one
in its place, unless that one has the sticky bit or belongs to this pod alone. So every folder on
the way to it is checked, from the root on, by descriptors that follow no link.

It travels to nodes by value: the standard library, and what guardian.py has.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from anubis.reach.executors.guardian import foreign_writers


def make_own_folder(kind: str, parents: Iterable[str]) -> Path:
    """Make a new folder whose name begins with `kind`, in the first of `parents` where nobody else
    can put another in its place; a RuntimeError says why there is none."""
    troubles = []
    for parent in map(os.path.realpath, parents):
        trouble = foreign_writers(parent)
        if not trouble:
            return Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=parent))
        troubles.append(f'no folder in "{parent}" is safe from other users: {trouble}')
    raise RuntimeError(
        f"{troubles[-1]}; give it the sticky bit (chmod +t), or set TMPDIR to a folder that only"
        " this user may change"
    )


def make_held_folder(kind: str, parents: Iterable[str]) -> tuple[Path, int]:
    """Make such a folder, and return a descriptor of it too, which marks it as in use for as long
    as this process lives."""
    while True:
        folder = make_own_folder(kind, parents)
        with suppress(FileNotFoundError):  # another has taken it for left behind, until it is held
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return folder, descriptor
            os.close(descriptor)


def remove_unheld(kind: str, parent: Path) -> None:
    """Remove folders of ours that a killed process left; those of others are left alone."""
    for folder in parent.glob(f"{kind}-*"):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(descriptor)
                if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o700:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
            finally:
                os.close(descriptor)
