"""Restarting services host by host."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kestrelctl.errors import KestrelError
from kestrelctl.fleet.shell import Shell
from kestrelctl.fleet.units import UNITS, read_units, show_command

_ASK_SECONDS = 30
#: Several workers may be restarted at a time: they do not need one another.
_MANY = "kestrel-worker"
_ACTIVE_WITHIN_SECONDS = 30
_SCRIPT = """\
unit={unit}
systemctl reset-failed "$unit" 2>/dev/null
systemctl restart "$unit" || {{ journalctl --quiet --no-pager -n 5 -o cat -u "$unit" >&2; exit 1; }}
tries=0
until systemctl is-active --quiet "$unit"; do
  tries=$((tries + 1))
  if [ $tries -gt {tries} ] || systemctl is-failed --quiet "$unit"; then
    journalctl --quiet --no-pager -n 5 -o cat -u "$unit" >&2
    exit 1
  fi
  sleep 0.1
done"""


@dataclass(frozen=True, slots=True)
class RestartStep:
    """Restarts of one unit that may happen at the same time; `hosts` are names."""

    unit: str
    hosts: tuple[str, ...]


def installed(shell: Shell, units: Sequence[str]) -> list[str]:
    """Returns those of the units that a host has.

    Raises:
        KestrelError: it cannot tell.
    """
    ran = shell.run(show_command(units), timeout_seconds=_ASK_SECONDS)
    if ran.status:
        raise KestrelError("it does not say which services it has", cause=ran.stderr.strip())
    return [unit.name for unit in read_units(ran.stdout)]


def plan(found: Iterable[tuple[str, Sequence[str]]], serial: int) -> list[RestartStep]:
    """Puts restarts in order: servers before managers before workers.

    Args:
        found: (host, its units).
        serial: how many workers at a time; everything else goes one by one.
    """
    pairs = list(found)
    known = {unit: i for i, unit in enumerate(UNITS)}
    units = sorted({u for _, us in pairs for u in us}, key=lambda u: (known.get(u, len(known)), u))
    steps = []
    for unit in units:
        hosts = [host for host, its in pairs if unit in its]
        size = serial if unit == _MANY else 1
        steps += [RestartStep(unit, tuple(hosts[i : i + size])) for i in range(0, len(hosts), size)]
    return steps


def restart(shell: Shell, unit: str, timeout_seconds: float) -> float:
    """Restarts a unit and waits until it is active; returns how many seconds that took.

    Raises:
        KestrelError: it did not become active; the cause is what it wrote last.
        TimedOut: it took too long, as a worker may that waits for its tasks.
    """
    tries = _ACTIVE_WITHIN_SECONDS * 10
    script = _SCRIPT.format(unit=shlex.quote(f"{unit}.service"), tries=tries)
    ran = shell.run(script, timeout_seconds=timeout_seconds)
    if ran.status:
        raise KestrelError(
            f"{unit} did not become active",
            cause=ran.stderr.strip() or None,
            hint=f"kestrelctl fleet logs --unit {unit}",
        )
    return ran.seconds
