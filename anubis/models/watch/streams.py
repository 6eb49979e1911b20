"""State of a stream of outliers between two looks, as bytes to be stored.

Each look of a service is a process of its own, and the rule of ten minutes needs an hour. Some 300
bytes for each metric and node are stored, fewer once compressed. A stream of other metrics, nodes
or peers, or of another release, cannot use them and begins anew.
"""

from __future__ import annotations

import io
from hashlib import sha256

import numpy as np

from anubis.core.watch.outliers import OutlierStream

VERSION = 1  # of the arrays of `OutlierStream.state` and their meaning
SEAL_BYTES = sha256().digest_size


def pack(stream: OutlierStream) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **stream.state())
    state = file.getvalue()
    return _seal(stream, state) + state


def resume(stream: OutlierStream, kept: bytes) -> bool:
    """Restore the stream from stored bytes. Return whether they were complete and from such a
    stream; else it stays as new."""
    seal, state = kept[:SEAL_BYTES], kept[SEAL_BYTES:]
    if seal != _seal(stream, state):
        return False
    with np.load(io.BytesIO(state), allow_pickle=False) as arrays:
        stream.restore(dict(arrays))
    return True


def _seal(stream: OutlierStream, state: bytes) -> bytes:
    facts = (VERSION, stream.rule, stream.metrics, stream.nodes, stream.groups)
    return sha256(repr(facts).encode() + state).digest()
