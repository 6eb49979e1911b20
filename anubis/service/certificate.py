"""Answer over TLS, with a certificate that may be renewed while the service runs."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from anubis.core.errors import UsageError
from anubis.service.requester import LOG

FileVersions = tuple[tuple[int, int, int], ...]  # of files, as their file system tells them apart


class Certificate:
    """A certificate with its key, in PEM. What renews them replaces the files: the next handshake
    takes the new ones, and keeps the old ones while the new ones do not fit together."""

    def __init__(self, certificate: Path, private_key: Path) -> None:
        self._files = (certificate, private_key)
        try:
            self._versions = self._read_versions()
            self.context = self._load()
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise UsageError(
                f'--certificate "{certificate}" with --private-key "{private_key}": {reason};'
                " expected a certificate and its key, both in PEM and without a password"
            ) from None

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._files, password=_refuse_password)
        context.sni_callback = self._renew  # called in each handshake, whatever name it has
        return context

    def _renew(
        self, peer: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext
    ) -> None:
        try:
            versions = self._read_versions()
            if versions != self._versions:
                self.context, self._versions = self._load(), versions
                LOG.info("the certificate was renewed")
        except (OSError, ValueError) as error:
            LOG.warning("the new certificate cannot be used, the old one stays: %s", error)
        peer.context = self.context

    def _read_versions(self) -> FileVersions:
        states = map(os.stat, self._files)
        return tuple((state.st_ino, state.st_mtime_ns, state.st_size) for state in states)


def _refuse_password() -> str:
    """Keep OpenSSL from asking at the terminal."""
    raise ValueError("the key has a password")
