"""The socket to systemd (sd_notify(3)), or to the parent that passes on what is said there."""

from __future__ import annotations

import socket
from collections.abc import Mapping

#: The variable with the descriptor of a socket to the parent, for a process whose parent tells
#: systemd on its behalf.
RELAY_VARIABLE = "KESTREL_NOTIFY_DESCRIPTOR"


def to_systemd(environment: Mapping[str, str]) -> socket.socket | None:
    """A socket to systemd, never blocking; None if it did not ask, or cannot be had.

    Args:
        environment: as systemd gives it to services. `@` stands for the NUL of an abstract name.
    """
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return None
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    try:
        made.connect(f"\0{address[1:]}" if address.startswith("@") else address)
    except OSError:
        made.close()
        return None
    return made


def to_parent_or_systemd(environment: Mapping[str, str]) -> socket.socket | None:
    """A socket to the parent that passes things on; without one, `to_systemd`."""
    descriptor = environment.get(RELAY_VARIABLE, "")
    if descriptor.isdecimal():
        return socket.socket(fileno=int(descriptor))
    return to_systemd(environment)
