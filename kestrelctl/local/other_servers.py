"""Checks what `up` is told of other servers, before anything starts."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kestrelctl.core.model.names import problem_with_domain
from kestrelctl.errors import UsageError
from kestrelctl.metrics.endpoint import parse_address
from kestrelctl.xmpp.federation import Federation
from kestrelctl.xmpp.prosody import LOCAL_DOMAIN
from kestrelctl.xmpp.tls import check_pair


def parse_domain(text: str) -> str:
    """The domain of an XMPP server, in lower case.

    Raises:
        UsageError: it is none.
    """
    if (problem := problem_with_domain(text.lower())) is not None:
        raise UsageError(problem, hint="for example pool.example.org")
    return text.lower()


def federation_of(
    domains: Iterable[str],
    users: Iterable[str],
    certificate: Path | None,
    key: Path | None,
    listen: str,
) -> Federation | None:
    """Combines the options of `up` about other servers; None if there are none.

    Args:
        domains: of other servers.
        users: addresses of accounts there.
        listen: ADDRESS:PORT; empty for all addresses and the port of the standard.

    Raises:
        UsageError: they do not fit together.
    """
    domains = tuple(dict.fromkeys(parse_domain(domain) for domain in domains))
    users = tuple(dict.fromkeys(user.lower() for user in users))
    if not domains:
        if users or certificate or key or listen:
            raise UsageError(
                "no other server may reach the pool",
                cause="--remote-user, --certificate, --key and --federation-listen are about them",
                hint="name their domains: --federated-domain DOMAIN",
            )
        return None
    for user in users:
        name, _, domain = user.partition("@")
        if not name or domain not in domains:
            raise UsageError(
                f"{user!r} is not an address at an allowed domain",
                cause=f"allowed: {', '.join(domains)}",
                hint="--remote-user NAME@DOMAIN, and --federated-domain DOMAIN for its domain",
            )
    if certificate is None or key is None:
        raise UsageError(
            "other servers ask for a certificate of the pool's domain",
            hint="--certificate FILE --key FILE",
        )
    found = Federation(
        domains=domains,
        users=users,
        certificate=str(certificate.absolute()),
        key=str(key.absolute()),
    )
    if not listen:
        return found
    address, port = parse_address(listen)
    try:
        ipaddress.ip_address(address)
    except ValueError:
        port = 0
    if not port:
        raise UsageError(
            f"{listen!r} is no place for other servers to connect to",
            hint="--federation-listen ADDRESS:PORT, for example 192.0.2.1:5269 or [::]:5269",
        )
    return msgspec.structs.replace(found, interfaces=(address,), port=port)


def check_name(federation: Federation, domain: str) -> None:
    """Passes if a pool could show itself to other servers as that domain today.

    Raises:
        UsageError: it has no name or no certificate for them, or takes itself for one of them.
    """
    if domain == LOCAL_DOMAIN:
        raise UsageError(
            "the pool needs a name by which other servers find it",
            cause=f"{domain} is this machine's own, on every machine",
            hint="--domain NAME, as DNS knows this machine",
        )
    own = {domain, f"workers.{domain}", f"users.{domain}"}.intersection(federation.domains)
    if own:
        raise UsageError(
            f"{own.pop()} is the pool's own, and not at another server",
            hint="--federated-domain names the domains of other servers",
        )
    check_pair(Path(federation.certificate), Path(federation.key), domain)


def check_port(federation: Federation) -> None:
    """Passes if other servers could connect now.

    Raises:
        UsageError: the address or port cannot be had.
    """
    host = federation.interfaces[0].replace("*", "0.0.0.0")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, federation.port), family=family).close()
    except OSError as error:
        raise UsageError(
            f"the server cannot listen at {host} port {federation.port} for other servers",
            cause=error.strerror,
            hint="--federation-listen ADDRESS:PORT names another place",
        ) from None


def domain_of(directory: Path, wanted: str, otherwise: str = LOCAL_DOMAIN) -> str:
    """The domain of a pool: the one it was begun with, because its jobs belong to accounts there.

    Args:
        directory: of the pool.
        wanted: the domain that the user named; empty if he named none.
        otherwise: the domain of a new pool for which he named none.

    Raises:
        UsageError: the pool has another one.
    """
    kept = ""
    if (directory / "manager").exists():
        file = directory / "domain"
        kept = file.read_text(errors="replace").strip() if file.exists() else LOCAL_DOMAIN
    if kept and wanted and kept != wanted:
        raise UsageError(
            f"the pool {directory.name} is {kept}, and stays so",
            cause="its jobs belong to accounts of that domain",
            hint=f"`kestrelctl up --name OTHER --domain {wanted}` begins a pool beside it",
        )
    return kept or wanted or otherwise
