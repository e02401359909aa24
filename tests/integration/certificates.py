"""Certificates that have expired: `openssl` 3.5 signs none by `-days`, and 3.0 takes no dates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def expire(certificate: Path, signing_key: Path) -> None:
    """Signs a certificate again, alike but for its dates: it was valid until yesterday.

    Args:
        certificate: a PEM file, which is replaced.
        signing_key: the key, of an elliptic curve, of who signed it.
    """
    valid = x509.load_pem_x509_certificate(certificate.read_bytes())
    key = serialization.load_pem_private_key(signing_key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    yesterday = datetime.now(UTC) - timedelta(days=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(valid.subject)
        .issuer_name(valid.issuer)
        .public_key(valid.public_key())
        .serial_number(valid.serial_number)
        .not_valid_before(yesterday - timedelta(days=1))
        .not_valid_after(yesterday)
    )
    for extension in valid.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    expired = builder.sign(key, hashes.SHA256())
    certificate.write_bytes(expired.public_bytes(serialization.Encoding.PEM))
