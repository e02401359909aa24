"""Sign, renew or judge the certificate of a pool's XMPP server.

Runs on the controller: the authority's key never gets to a host, and a host's key never leaves it.
A request (PKCS #10) proves that the host has its key; only the names given here are certified.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.types import (
    CertificateIssuerPrivateKeyTypes,
    PublicKeyTypes,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CLOCK_SKEW = timedelta(hours=1)
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


def general_names(names: Iterable[str]) -> list[x509.GeneralName]:
    """Return names and addresses as a certificate has them; what is neither is left out."""
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            if _HOST_NAME.fullmatch(name):
                found.append(x509.DNSName(name))
    return found


def names_of(certificate: x509.Certificate) -> list[x509.GeneralName]:
    """Return the names and addresses a certificate is for."""
    try:
        return list(
            certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        )
    except x509.ExtensionNotFound:
        return []


def signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Tell whether an authority itself signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def reason_to_renew(
    present: x509.Certificate | None,
    request: x509.CertificateSigningRequest,
    names: Iterable[str],
    authority: x509.Certificate,
    now: datetime,
    renew_days: int,
) -> str | None:
    """Return why a new certificate is needed, in words; None if the present one will do."""
    if present is None:
        return "there is none"
    if not signed_by(present, authority):
        return "the pool has another certificate authority"
    if present.public_key() != request.public_key():
        return "the server has another key"
    if set(names_of(present)) != set(general_names(names)):
        return "the server has other names"
    if present.not_valid_after_utc < now + timedelta(days=renew_days):
        return f"it ends on {present.not_valid_after_utc:%Y-%m-%d}"
    return None


def sign(
    request: x509.CertificateSigningRequest,
    names: Iterable[str],
    authority: x509.Certificate,
    key: CertificateIssuerPrivateKeyTypes,
    now: datetime,
    days: int,
) -> x509.Certificate:
    """Return a certificate for a server; it never outlives the authority."""
    wanted = general_names(names)
    first = next(name.value for name in wanted if isinstance(name, x509.DNSName))
    end = min(now + timedelta(days=days), authority.not_valid_after_utc)
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, first[:64])]))
        .issuer_name(authority.subject)
        .public_key(request.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName(wanted), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        # A server that opens a stream to another one is a client there.
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(request.public_key()), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )


def judge_given(
    chain: list[x509.Certificate],
    key: PublicKeyTypes,
    names: Iterable[str],
    trusted: list[x509.Certificate],
    now: datetime,
    renew_days: int,
) -> tuple[list[str], list[str]]:
    """Return the faults of a certificate that somebody brought, and what to warn of."""
    leaf, faults, warnings = chain[0], [], []
    end = leaf.not_valid_after_utc
    if end <= now:
        faults.append(f"it ended on {end:%Y-%m-%d %H:%M} UTC")
    elif end < now + timedelta(days=renew_days):
        warnings.append(
            f"the given certificate ends on {end:%Y-%m-%d}, in {(end - now).days} days:"
            " put a new one in its place and run this again"
        )
    if leaf.not_valid_before_utc > now:
        faults.append(f"it begins only on {leaf.not_valid_before_utc:%Y-%m-%d %H:%M} UTC")
    if leaf.public_key() != key:
        faults.append("it does not belong to the given key")
    missing = [name for name in general_names(names) if not _covers(names_of(leaf), name)]
    if missing:
        told = ", ".join(str(name.value) for name in missing)
        faults.append(f"it is not for {told} (see xmpp_server_certificate_names)")
    if not any(signed_by(link, authority) for link in chain for authority in trusted):
        faults.append(
            "no authority in kestrel_ca_certificate signed it, so no machine of the pool would"
            " trust the server"
        )
    return faults, warnings


def _covers(names: Iterable[x509.GeneralName], wanted: x509.GeneralName) -> bool:
    if not isinstance(wanted, x509.DNSName):
        return wanted in names
    _, _, parent = wanted.value.lower().partition(".")
    held = {name.value.lower() for name in names if isinstance(name, x509.DNSName)}
    return wanted.value.lower() in held or f"*.{parent}" in held


class ActionModule(ActionBase):
    """Returns the certificate that the server must have."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return `certificate` (PEM) and `reason`, why it is not the present one, if it is not."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
            {
                "request": {"type": "str", "required": True},
                "present": {"type": "str", "required": True},
                "given": {"type": "str", "required": True},
                "given_key": {"type": "str", "required": True, "no_log": True},
                "names": {"type": "list", "elements": "str", "required": True},
                "days": {"type": "int", "required": True},
                "renew_days": {"type": "int", "required": True},
                "ca_certificate": {"type": "str", "required": True},
                "ca_key": {"type": "str", "required": True, "no_log": True},
            }
        )
        now = datetime.now(UTC)
        trusted = _load(arguments["ca_certificate"], "kestrel_ca_certificate")
        if not trusted:
            raise AnsibleActionFail(
                "kestrel_ca_certificate is empty. With xmpp_server_certificate_file, set it to the"
                " PEM of the authority that signed that certificate; without, run"
                " playbooks/secrets.yml, which makes one."
            )
        if arguments["given"]:
            chain = _load(arguments["given"], "xmpp_server_certificate_file")
            if not chain:
                raise AnsibleActionFail("xmpp_server_certificate_file holds no certificate")
            faults, warnings = judge_given(
                chain,
                _public_key(arguments["given_key"]),
                arguments["names"],
                trusted,
                now,
                arguments["renew_days"],
            )
            if faults:
                raise AnsibleActionFail(
                    "The given certificate cannot be used: " + "; ".join(faults) + "."
                )
            result.update(certificate=arguments["given"], reason=None, warnings=warnings)
            return result
        request = x509.load_pem_x509_csr(arguments["request"].encode())
        present = _present(arguments["present"])
        reason = reason_to_renew(
            present, request, arguments["names"], trusted[0], now, arguments["renew_days"]
        )
        result["reason"] = reason
        if reason is None:
            result["certificate"] = arguments["present"].rstrip("\n") + "\n"
        else:
            if not request.is_signature_valid:
                raise AnsibleActionFail("the server's request is damaged")
            key: Any = serialization.load_pem_private_key(arguments["ca_key"].encode(), None)
            certificate = sign(
                request,
                arguments["names"],
                trusted[0],
                key,
                now,
                arguments["days"],
            )
            result["certificate"] = certificate.public_bytes(serialization.Encoding.PEM).decode()
        return result


def _load(pem: str, name: str) -> list[x509.Certificate]:
    if not pem.strip():
        return []
    try:
        return x509.load_pem_x509_certificates(pem.encode())
    except ValueError as error:
        raise AnsibleActionFail(f"{name} is no certificate in PEM: {error}") from None


def _public_key(pem: str) -> PublicKeyTypes:
    try:
        return serialization.load_pem_private_key(pem.encode(), None).public_key()
    except (ValueError, TypeError):
        raise AnsibleActionFail(
            "xmpp_server_certificate_key_file must hold a key in PEM, without a password"
        ) from None


def _present(pem: str) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificates(pem.encode())[0]
    except ValueError:
        return None
