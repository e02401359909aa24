"""TLS of a connection: whom it trusts, and an explanation where it does not trust a server.

A certificate is checked as RFC 6120, 13.7.2 asks: it must come from an authority that is trusted,
be valid now, and name the domain of the account or component, whatever address was connected to.
"""

from __future__ import annotations

import functools
import ssl
from contextlib import suppress
from pathlib import Path

from kestrelctl.errors import KestrelError, Untrusted, UsageError

# X509_V_ERR_* of openssl/x509_vfy.h; Python has no names for them.
_NOT_YET_VALID = 9
_EXPIRED = 10
_OTHER_NAME = 62


@functools.cache
def context(ca_file: Path | None) -> ssl.SSLContext:
    """The one context of this process for an authority: making one takes longer than a login.

    Args:
        ca_file: certificates (PEM) of the only authorities to trust; None for the system's.

    Raises:
        UsageError: the file cannot be read, or holds no certificate.
    """
    try:
        made = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"the CA file {ca_file} cannot be used",
            cause="it holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror,
            hint="it must hold the certificate of the pool's authority, as PEM",
        ) from None
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    return made


def check_pair(certificate: Path, key: Path, domain: str) -> None:
    """Passes if a server could prove with these files (PEM) today that it is that of a domain.

    It does not ask who has signed the certificate: those who connect decide whether to trust that.

    Raises:
        UsageError: it could not.
    """
    for what, file in (("certificate", certificate), ("key", key)):
        try:
            file.read_bytes()
        except OSError as error:
            raise UsageError(
                f"the {what} {file} cannot be read",
                cause=error.strerror,
                hint=f"--{what} names a file (PEM) that you may read",
            ) from None
    server, client = (
        ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    try:
        server.load_cert_chain(certificate, key, password="")  # nobody is there to be asked for one
        client.load_verify_locations(certificate)
    except (ssl.SSLError, ValueError) as error:
        raise UsageError(
            f"{certificate} and {key} are not a certificate and its key",
            cause=getattr(error, "reason", None) or str(error),
            hint="both must be PEM, belong together, and the key must have no password",
        ) from None
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # what the file holds is trusted
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks = client.wrap_bio(back, there, server_hostname=domain)
    shows = server.wrap_bio(there, back, server_side=True)
    try:
        for side in (asks, shows, asks):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        raise UsageError(
            f"the certificate {certificate} is not one for {domain} now",
            cause=error.verify_message,
            hint="it must name the pool's domain and be valid",
        ) from None
    except ssl.SSLError as error:  # a kind of key that TLS does not know, or not here
        raise UsageError(
            f"no connection can be encrypted with {certificate} and {key}",
            cause=error.reason or str(error),
            hint="take a key of a usual kind: RSA with 2,048 bits or more, or EC P-256",
        ) from None


def explain(error: object, domain: str, ca_file: Path | None) -> KestrelError | None:
    """Explains a failed handshake; None if the failure has nothing to do with trust.

    Args:
        error: what the connection ended with.
        domain: whose certificate was expected.
        ca_file: as in `context`.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code == _OTHER_NAME:
            return _other_name(error.verify_message, domain)
        if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
            return Untrusted(
                "the server's certificate is not valid now",
                cause=error.verify_message,
                hint="renew it on the server, unless the clock of this machine is wrong",
            )
        return Untrusted(
            "the server's certificate is not trusted",
            cause=error.verify_message,
            hint=f"is {ca_file} the CA of this pool?"
            if ca_file is not None
            else "give it the CA of the pool: --ca-file, or `ca_file` in the configuration",
        )
    reason = str(getattr(error, "reason", "")) if isinstance(error, ssl.SSLError) else ""
    if "UNRECOGNIZED_NAME" in reason:
        return _other_name("the server has none for it", domain)
    if reason == "WRONG_VERSION_NUMBER":
        return Untrusted(
            "the server does not speak TLS there",
            hint="is the port right? components have one for TLS beside the plain one",
        )
    return None


def _other_name(cause: str, domain: str) -> KestrelError:
    return Untrusted(
        f"the server has no certificate for {domain}",
        cause=cause,
        hint="is it the right server? its certificate must name that domain",
    )
