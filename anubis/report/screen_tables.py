"""Tables on a terminal: words at the left, which may be folded, and figures at the right, which
never are. Names are shown as they are: `node[01]` is a name here, not markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


SHORT = 16  # letters of a name


def table(
    *words: str, figures: Sequence[str] = (), gap: int = 3, names: Iterable[str] = ()
) -> Table:
    """Begin a table with columns by their headings; `gap`: the spaces between two of them. `names`:
    those of the first column, which a narrow terminal folds only if they are long."""
    from rich import box
    from rich.table import Table

    columns = Table(
        box=box.SIMPLE_HEAD,
        header_style="bold",
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, gap - 2),
    )
    for heading in words:
        columns.add_column(heading, overflow="fold")
    if longest := max(map(len, names), default=0):
        columns.columns[0].min_width = min(longest, SHORT)
    for heading in figures:
        columns.add_column(heading, justify="right", no_wrap=True)
    return columns


def add_row(rows: Table, *cells: str | Text) -> None:
    from rich.text import Text

    rows.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
