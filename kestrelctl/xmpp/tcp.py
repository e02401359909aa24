"""How soon TCP notices that the other side is gone: tcp(7)."""

from __future__ import annotations

import asyncio
import socket

#: A peer that neither answers nor closes is given up after this long.
_USER_TIMEOUT_MS = 20_000


def detect_dead_peers(transport: asyncio.Transport | None) -> None:
    """Makes a connection end soon after its peer has vanished, where the system can do that."""
    found = transport.get_extra_info("socket") if transport is not None else None
    if found is None:
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 15),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", _USER_TIMEOUT_MS),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            found.setsockopt(socket.IPPROTO_TCP, option, value)
