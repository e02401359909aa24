"""The services that make a pool, and what systemd says about them (systemctl(1))."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from kestrelctl.grammar.quantities import parse_digits

#: The services of a pool, in the order in which they depend on one another.
UNITS = ("prosody", "kestrel-manager", "kestrel-worker", "prometheus", "grafana-server")
#: The services that are Kestrel's own.
KESTREL_UNITS = ("kestrel-manager", "kestrel-worker")

_PROPERTIES = "Id,LoadState,ActiveState,SubState,StateChangeTimestamp,NRestarts"


class Unit(msgspec.Struct, frozen=True):
    """A service that is installed on a host.

    Attributes:
        state: `active`, `activating`, `deactivating`, `inactive`, `failed` or `reloading`.
        since: when it got there, seconds since 1970; None if it never left its first state.
        restarts: how often systemd has restarted it by itself.
    """

    name: str
    state: str
    since: float | None
    restarts: int


def service(unit: str) -> str:
    """The name of a service as systemd has it, whether or not it was given with its ending."""
    return f"{unit.removesuffix('.service')}.service"


def show_command(units: Sequence[str]) -> str:
    """The command whose output `read_units` reads."""
    names = shlex.join(map(service, units))
    return f"systemctl show --timestamp=unix -p {_PROPERTIES} {names}"


def read_units(told: str) -> list[Unit]:
    """The units that are installed, from what `systemctl show` prints, in its order."""
    units = []
    for block in told.strip().split("\n\n"):
        found = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if found.get("LoadState") not in (None, "not-found"):
            units.append(_unit(found))
    return units


def _unit(found: Mapping[str, str]) -> Unit:
    since = parse_digits(found.get("StateChangeTimestamp", "").lstrip("@"))
    return Unit(
        name=found.get("Id", "").removesuffix(".service"),
        state=found.get("ActiveState", ""),
        since=float(since) if since else None,
        restarts=parse_digits(found.get("NRestarts", "")) or 0,
    )
