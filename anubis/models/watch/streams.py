"""What a stream of outliers has to remember between two looks, as bytes to be kept.

Looks of a service are processes of their own, and the rule of ten minutes needs an hour. Of each
metric and node some 300 bytes are kept, less once packed. They are worth nothing to a stream of
other metrics, nodes or peers, or of another release: that one begins anew.
"""

from __future__ import annotations

import io
from hashlib import sha256

import numpy as np

from anubis.core.watch.outliers import OutlierStream

VERSION = 1  # of what `OutlierStream.state` holds, and of what its arrays mean
SEAL_BYTES = sha256().digest_size


def packed(stream: OutlierStream) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **stream.state())
    state = file.getvalue()
    return _seal(stream, state) + state


def resume(stream: OutlierStream, kept: bytes) -> bool:
    """Whether it goes on from what was kept, whole and by a stream like this; else it is as new."""
    seal, state = kept[:SEAL_BYTES], kept[SEAL_BYTES:]
    if seal != _seal(stream, state):
        return False
    with np.load(io.BytesIO(state), allow_pickle=False) as arrays:
        stream.restore(dict(arrays))
    return True


def _seal(stream: OutlierStream, state: bytes) -> bytes:
    facts = (VERSION, stream.rule, stream.metrics, stream.nodes, stream.groups)
    return sha256(repr(facts).encode() + state).digest()
