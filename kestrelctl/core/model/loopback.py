"""Tells which hosts are the machine itself."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether what is sent to a host stays on this machine, by the host's name alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
