"""Decides who may read the metrics of a process."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from kestrelctl.errors import UsageError


class Readers:
    """This machine over its loopback interface, and the addresses and networks that are named.

    Args:
        allowed: addresses, or networks such as `192.0.2.0/24`; no names, because whom a name leads
            to is decided elsewhere.

    Raises:
        UsageError: one of them is neither.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._networks = [_network(text) for text in allowed]

    def admit(self, peer: str) -> bool:
        """Whether a client at that address may read.

        Args:
            peer: the address of the connection's other end, as the socket tells it.
        """
        address = ipaddress.ip_address(peer.partition("%")[0])  # fe80::1%eth0
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
        return address.is_loopback or any(address in network for network in self._networks)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is no address and no network",
            cause=str(error),
            hint="for example --metrics-allow 192.0.2.31, or 192.0.2.0/24",
        ) from None
