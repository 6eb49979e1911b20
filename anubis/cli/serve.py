"""`anubis serve`: the API and the pages over HTTP."""

from __future__ import annotations

import signal
from contextlib import suppress

from anubis.cli.terminal import Terminal
from anubis.cli.verb import verb
from anubis.operations.requests import ServeRequest


@verb
def serve(request: ServeRequest) -> None:
    """Serve the API, the pages and the metrics of what the history knows.

    Without a token, only users of this machine may read. anubis token make makes one.
    """
    from anubis.service.server import serve as run

    # while the service starts, and when it raises the signal again at its end
    terminations: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: terminations.append(number))
    with suppress(KeyboardInterrupt):
        run(request, Terminal(), is_terminated=lambda: bool(terminations))
