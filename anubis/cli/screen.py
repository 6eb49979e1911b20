"""A console for tables and bars: escape sequences in their text are shown, not obeyed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from anubis.cli.streams import styled_stream
from anubis.core.text import escape

UNKNOWN_WIDTH = 80  # columns, as of old terminals


class Screen(Console):
    def __init__(self, *, highlight: bool = False, stderr: bool = False) -> None:
        stream = styled_stream(sys.stderr if stderr else sys.stdout)
        super().__init__(file=stream, highlight=highlight, stderr=stderr)
        if self.width < 1:  # a terminal that does not know its size: rich would print nothing
            self.width = UNKNOWN_WIDTH

    def render(self, *args: Any, **options: Any) -> Iterable[Segment]:
        for segment in super().render(*args, **options):
            yield segment if segment.control else segment._replace(text=escape(segment.text))
