"""Makes the clock of a process show what the file CHAOS_SITE/clock says it is wrong by: imported
before anything that takes the time.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_FILE, _right = Path(os.environ["CHAOS_SITE"], "clock"), time.time


def _shown() -> float:
    try:
        return _right() + float(_FILE.read_text() or 0)
    except (OSError, ValueError):
        return _right()


time.time = _shown
