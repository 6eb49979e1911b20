"""Find what lines that differ in digits only have in common, such as those of steps, once for all
of them: so long logs are read several times faster.

Nothing here depends on which digits a line has, but for what is looked up in the line itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from anubis.core.diagnose.error_classes import ZEROS, ErrorClass, ErrorClasses
from anubis.readers.jobs.launcher_words import MARKS, REPEATED, SLURMS

PREFIX = re.compile(r"^(?:\[\d+\] ?|\d+: ?)?\[(?:(rank)|[a-z_]{2,20}?)(\d{1,6})\]:? ?")
# also as scripts of sites write it in German, French, Spanish, Italian or Portuguese, Russian,
# Japanese and Chinese
STEP = re.compile(
    r"(?:(?<![a-z])(?:(?:step|iter|iteration)s?|num_updates|schritt|étape|pass?o|шаг)\b"
    r"|ステップ|步数?|第(?= ?\d+ ?步))[\"']?[ \t=:#\[]{0,10}(\d{1,12})(?![\d_a-z])",
    re.I,
)
STEP_WORDS = (
    *("step", "iter", "Step", "Iter", "num_updates", "chritt", "tape", "aso", "asso"),
    *("аг", "ステップ", "步"),  # noqa: RUF001
)
# what counts while nothing moves
WAITING = re.compile(
    r"\b(?:waiting|retry(?:ing)?|attempt|heartbeat|watchdog|monitor(?:ing)?|poll(?:ing)?|health"
    r"|no progress|stall(?:ed)?|stuck|timed out|scrap(?:e|ing)|export(?:er|ing)"
    r"|prefetch(?:ed|ing)?|queued|alive|uptime)\b",
    re.I,
)
ENTRY = re.compile(r"^\s*(time|host|rank|exitcode)\s*: (.+)")
TRACEBACK = "Traceback (most recent call last)"
CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
LEVELS = ("ERROR", "WARN", "CRITICAL", "FATAL")  # of a line that announces a traceback
ROOT_CAUSE = "Root Cause (first observed failure)"
QUOTE = "Error Snippet]"  # of Ray Train
WORLD_RANK = "world_rank="
FAILED = "failed (exitcode:"  # torchrun, of each attempt
RESTARTS = "will restart worker group"
ELASTIC = "torch/distributed/elastic"
WORDS = (  # that a reader of lines looks for
    *(TRACEBACK, *LEVELS, "NCCL", ROOT_CAUSE, QUOTE, WORLD_RANK, FAILED, RESTARTS, ELASTIC),
    *(*MARKS, REPEATED),
)
FOLDED = bytes.maketrans(b"123456789", b"000000000")  # the same of bytes, which is faster
MOST_SHAPES = 20_000  # kept: lines of free text have as many as there are lines


@dataclass(frozen=True, slots=True)
class LineShape:
    prefix: int  # letters before its text, which name its writer
    is_dated: bool  # as it may be, by its beginning
    step: tuple[int, int] | None  # place of the number of a step in its text
    is_usual: bool  # it has no words that need a closer look, but for those of classes
    rows: tuple[ErrorClass, ...]  # of the table of classes that it may belong to


@dataclass(kw_only=True)
class LineShapes:
    classes: ErrorClasses
    _kept: dict[bytes, LineShape] = field(default_factory=dict)

    def shape_of(self, line: str) -> LineShape:
        folded = line.encode(errors="surrogatepass").translate(FOLDED)
        shape = self._kept.get(folded)
        if shape is None:
            if len(self._kept) >= MOST_SHAPES:
                self._kept.clear()
            shape = self._kept[folded] = find_shape(line.translate(ZEROS), self.classes)
        return shape


def find_shape(line: str, classes: ErrorClasses) -> LineShape:
    """Return the shape of a line in which each digit is a zero."""
    prefix = _prefix(line)
    text = line[prefix:]
    may_count = any(word in text for word in STEP_WORDS) and not text.startswith(SLURMS)
    step = STEP.search(text) if may_count else None
    has_words = any(word in text for word in WORDS) or text.startswith((*CHAINED, "===="))
    return LineShape(
        prefix=prefix,
        is_dated=line[0] in "[{0123456789IWEF" or ":" in line[:40],
        step=step.span(1) if step and not WAITING.search(text) else None,
        is_usual=not has_words and not ENTRY.match(text),
        rows=classes.training_rows(text),
    )


def _prefix(line: str) -> int:
    if "[" not in line[:12] or not (match := PREFIX.match(line)):
        return 0
    inner = PREFIX.match(line[match.end() :])  # torchrun's prefix before PyTorch's own
    return match.end() + (inner.end() if inner else 0)
