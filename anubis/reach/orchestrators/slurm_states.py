"""Slurm's states of a node, and what they mean for us: Slurm 22.05 to 25.11.

Slurm shows one base state and any number of flags: `idle+drain`, or a list of words in its JSON;
its short tables join some of them and add a sign (`drained*`). Whatever the form, it comes down to
the words below. A word that is not among them is not taken for good: the node is not free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, kw_only=True)
class SlurmWord:
    """A base state or a flag."""

    means: str = ""  # for a person; empty: the node may simply serve
    is_up: bool = True
    keeps_jobs_off: bool = False  # somebody's decision, or Slurm's about a node that answers badly
    is_at_work: bool = False
    is_maintenance: bool = False
    is_free: bool = True  # not reserved for something else, though nothing runs there


WORDS = {
    # base states
    "idle": SlurmWord(),
    "allocated": SlurmWord(is_at_work=True),
    "mixed": SlurmWord(is_at_work=True),
    "down": SlurmWord(means="down", is_up=False, keeps_jobs_off=True),
    "error": SlurmWord(means="in error", is_up=False, keeps_jobs_off=True),
    "unknown": SlurmWord(means="has not reported since slurmctld was started", is_up=False),
    "future": SlurmWord(means="a place for a later node", is_up=False, is_free=False),
    # flags: who keeps it from jobs
    "drain": SlurmWord(means="drained", keeps_jobs_off=True),
    "fail": SlurmWord(means="said to be failing", keeps_jobs_off=True),
    "invalid_reg": SlurmWord(
        means="registered with other parts than slurm.conf says", keeps_jobs_off=True
    ),
    "maintenance": SlurmWord(means="under maintenance", is_maintenance=True),
    "reserved": SlurmWord(means="reserved for others", is_free=False),
    "blocked": SlurmWord(means="kept empty beside a job that asked for it", is_free=False),
    # flags: whether it answers; what its owner turned off is not free, and no lost node
    "not_responding": SlurmWord(means="not answering slurmctld", is_up=False),
    "reboot_requested": SlurmWord(means="to be rebooted once it is idle", is_free=False),
    "reboot_issued": SlurmWord(means="being rebooted", is_up=False, is_free=False),
    "power_down": SlurmWord(means="to be powered down", is_free=False),
    "power_drain": SlurmWord(means="to be powered down once it is idle", is_free=False),
    "powering_down": SlurmWord(means="being powered down", is_up=False, is_free=False),
    "powered_down": SlurmWord(means="powered down", is_up=False, is_free=False),
    "power_up": SlurmWord(means="to be powered up", is_up=False, is_free=False),
    "powering_up": SlurmWord(means="being powered up", is_up=False, is_free=False),
    # flags that change nothing for us
    "completing": SlurmWord(is_at_work=True),
    "planned": SlurmWord(),  # idle, with a job of the queue in mind for later
    "cloud": SlurmWord(),
    "dynamic_norm": SlurmWord(),
    "dynamic_future": SlurmWord(),
    "external": SlurmWord(),
    "perfctrs": SlurmWord(is_free=False, means="in use by network performance counters"),
    "reboot_canceled": SlurmWord(),
    "resume": SlurmWord(),
    "undrain": SlurmWord(),
}
# what versions, short tables and C names call them
OTHER_NAMES = {
    "alloc": ("allocated",),
    "mix": ("mixed",),
    "comp": ("completing",),
    "unk": ("unknown",),
    "futr": ("future",),
    "err": ("error",),
    "drained": ("idle", "drain"),
    "draining": ("allocated", "drain"),
    "drng": ("allocated", "drain"),
    "failing": ("allocated", "fail"),
    "failg": ("allocated", "fail"),
    "maint": ("maintenance",),
    "res": ("reserved",),
    "resv": ("reserved",),
    "plnd": ("planned",),
    "block": ("blocked",),
    "inval": ("invalid_reg",),
    "invalid": ("invalid_reg",),
    "no_respond": ("not_responding",),
    "reboot": ("reboot_requested",),
    "boot": ("reboot_issued",),
    "reboot_cancel": ("reboot_canceled",),
    "pow_dn": ("powering_down",),
    "pow_up": ("powering_up",),
    "npc": ("perfctrs",),
    "net": ("perfctrs",),
    "dynamic": ("dynamic_norm",),
}
SIGNS = {
    "*": ("not_responding",),
    "~": ("powered_down",),
    "#": ("powering_up",),
    "!": ("power_down",),
    "%": ("powering_down",),
    "$": ("maintenance",),
    "@": ("reboot_requested",),
    "^": ("reboot_issued",),
    "-": ("planned",),
    "+": (),  # with other jobs on it than were asked for
}


@dataclass(frozen=True, kw_only=True)
class SlurmState:
    words: frozenset[str]  # of the table above
    strange: tuple[str, ...] = ()  # that it lacks

    @property
    def is_up(self) -> bool:
        return all(word.is_up for word in self._meanings)

    @property
    def keeps_jobs_off(self) -> bool:
        return any(word.keeps_jobs_off for word in self._meanings)

    @property
    def is_at_work(self) -> bool:
        return any(word.is_at_work for word in self._meanings)

    @property
    def is_in_maintenance(self) -> bool:
        return any(word.is_maintenance for word in self._meanings)

    @property
    def is_free(self) -> bool:
        """True if the node is not kept for something else. With a strange word that is not
        known."""
        return not self.strange and all(word.is_free for word in self._meanings)

    @property
    def means(self) -> str:
        """Meaning for a person; empty if the node may simply serve."""
        parts = [word.means for word in self._meanings if word.means]
        parts += [f'"{word}", a state that anubis does not know' for word in self.strange]
        return "; ".join(parts)

    @property
    def _meanings(self) -> list[SlurmWord]:
        return [meaning for word, meaning in WORDS.items() if word in self.words]


def read_state(state: str | Iterable[str]) -> SlurmState:
    """Parse a state as sinfo prints it (`idle+drain`, `drained*`), or as its JSON lists it."""
    return _read(state if isinstance(state, str) else "+".join(state))


@cache
def _read(text: str) -> SlurmState:
    words: set[str] = set()
    strange: list[str] = []
    for part in text.lower().replace(",", "+").split("+"):
        word = part.strip()
        signs = word[len(word.rstrip("".join(SIGNS))) :]
        bare = word.removesuffix(signs)
        for sign in signs:
            words.update(SIGNS[sign])
        meant = tuple(_known_words(bare))
        words.update(meant)
        if bare and not meant:
            strange.append(bare)
    if not words and not strange:
        strange.append(text.strip() or "no state")
    return SlurmState(words=frozenset(words), strange=tuple(strange))


def _known_words(word: str) -> Iterator[str]:
    if word in WORDS:
        yield word
    yield from OTHER_NAMES.get(word, ())
