"""The number of files that this process may have open; each connection is one."""

from __future__ import annotations

import resource


def allow_open_files(count: int) -> None:
    """Raise the limit to `count`, or as near to it as this user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        limit = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
