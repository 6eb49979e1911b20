"""The service over TLS: its certificate, and what happens when it is renewed."""

from __future__ import annotations

import shutil
import ssl
import subprocess

import pytest

from anubis.core.errors import UsageError
from anubis.service.server import Certificate
from anubis.service.service_settings import ServiceSettings

needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")


def make(folder, name):
    """A certificate of a name that signs itself, with its key."""
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    kind = "IP" if name[0].isdecimal() else "DNS"
    words += ["-subj", f"/CN={name}", "-addext", f"subjectAltName={kind}:{name}"]
    files = (folder / f"{name}.crt", folder / f"{name}.key")
    subprocess.run([*words, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


def served_name(certificate):
    """The name in the certificate that a handshake shows, by Python's own TLS without a socket."""
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks = client.wrap_bio(to_client, to_server, server_hostname="any")
    answers = certificate.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (asks, answers):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    shown = ssl.DER_cert_to_PEM_cert(asks.getpeercert(binary_form=True))
    words = ["openssl", "x509", "-noout", "-subject", "-nameopt", "multiline"]
    text = subprocess.run(words, input=shown, capture_output=True, text=True, check=True).stdout
    return text.rpartition("= ")[2].strip()


@needs_openssl
def test_a_renewed_certificate_is_taken_once_its_key_is_there_too(tmp_path):
    old, new = make(tmp_path, "old"), make(tmp_path, "new")
    mounted = (tmp_path / "tls.crt", tmp_path / "tls.key")
    for file, link in zip(old, mounted, strict=True):
        link.symlink_to(file)
    certificate = Certificate(*mounted)
    assert served_name(certificate) == "old"
    for file, link, expected in zip(new, mounted, ("old", "new"), strict=True):
        link.unlink()
        link.symlink_to(file)
        assert served_name(certificate) == expected
    mounted[0].unlink()
    assert served_name(certificate) == "new"


@needs_openssl
@pytest.mark.parametrize("case", ["missing", "no PEM", "another key", "a key with a password"])
def test_an_unusable_certificate_is_refused_in_one_sentence(tmp_path, case):
    file, key = make(tmp_path, "mine")
    if case == "missing":
        key.unlink()
    elif case == "no PEM":
        file.write_text("nothing")
    elif case == "another key":
        key = make(tmp_path, "other")[1]
    else:
        words = ["openssl", "ec", "-in", key, "-aes256", "-passout", "pass:abcd", "-out", key]
        subprocess.run(words, check=True, capture_output=True)
    with pytest.raises(UsageError, match=r'--certificate ".*mine.crt" with .*; expected a cert'):
        Certificate(file, key)


def test_a_certificate_without_its_key_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match="belong together"):
        ServiceSettings(certificate=tmp_path / "tls.crt")
