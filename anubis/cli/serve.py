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

    # the service ends by itself when it is told to; what it raises again afterwards is no news
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    with suppress(KeyboardInterrupt):
        run(request, Terminal())
