"""Make the names by which people know campaigns and events."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime


def new_name(kind: str, now: float) -> str:
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    return f"{kind}-{stamp}-{secrets.token_hex(2)}"
