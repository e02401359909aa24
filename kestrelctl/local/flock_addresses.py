"""The addresses at which servers of this user's pools listen for each other: a file per domain.

It is written and removed by the supervisor of the pool, and read by servers for each new stream.
A file that a crash has left names a port at which nobody listens, or somebody who cannot prove to
be that domain.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from kestrelctl.errors import NotFound


def write_address(directory: Path, domain: str, address: str) -> None:
    """Publishes where the server of a domain is, in one step.

    Args:
        directory: of addresses; it is made.
        address: ADDRESS:PORT, with numbers; an IPv6 address in brackets.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = directory / f".{domain}.{secrets.token_hex(4)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(f"{address}\n")
    draft.replace(directory / domain)


def remove_address(directory: Path, domain: str) -> None:
    """Removes the address of the server of a domain."""
    (directory / domain).unlink(missing_ok=True)


def read_address(directory: Path, domain: str) -> str:
    """Reads the address of the server of a domain: ADDRESS:PORT.

    Raises:
        NotFound: nobody has said it.
    """
    try:
        return (directory / domain).read_text().strip()
    except FileNotFoundError:
        raise NotFound(f"no pool of this machine is {domain} in a flock now") from None
