"""The state of a host: its services, version, free space, clock and certificates."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping

import msgspec

from kestrelctl.errors import KestrelError
from kestrelctl.fleet.shell import Shell
from kestrelctl.fleet.units import UNITS, Unit, read_units, show_command
from kestrelctl.grammar.quantities import parse_digits

_TIMEOUT_SECONDS = 30
_MOMENT = re.compile(r"\d{1,12}\.\d{1,9}")
_SECTION = "=== "
_SECTIONS = {"units", "version", "disk", "load", "certificates"}
#: Certificates: those that Prosody's configuration names, or the ones in its directory.
_SCRIPT = f"""\
say() {{ printf '\\n{_SECTION}%s\\n' "$1"; }}
say units; {show_command(UNITS)}
say version
for program in /opt/kestrel/venv/bin/kestrelctl kestrelctl; do
  "$program" --version 2>/dev/null && break
done
say disk
for directory in /var/lib/kestrel /var/lib; do
  df -B1 --output=avail,size "$directory" 2>/dev/null && break
done
say load; cat /proc/loadavg; nproc
say certificates
named=$(cat /etc/prosody/prosody.cfg.lua /etc/prosody/conf.d/*.lua 2>/dev/null |
  sed -n 's/^[^-]*certificate *= *"\\([^"]*\\)".*/\\1/p' | sort -u)
for file in ${{named:-/etc/prosody/certs/*.crt}}; do
  case $file in /*) ;; *) file=/etc/prosody/$file ;; esac
  end=$(openssl x509 -noout -enddate -in "$file" 2>/dev/null) && echo "$file $end"
done
true"""


class Certificate(msgspec.Struct, frozen=True):
    """A certificate of the XMPP server; `expires_at` in seconds since 1970."""

    file: str
    expires_at: float


class HostStatus(msgspec.Struct, frozen=True):
    """The state of a host.

    Attributes:
        version: of the installed kestrelctl; empty if there is none.
        disk_free_bytes, disk_bytes: of the file system of /var/lib/kestrel.
        load: over the last minute, on `cpus` processors.
        clock_offset_seconds: how far its clock is ahead of ours.
        clock_error_seconds: by how much that may be wrong: half of the round trip.
    """

    units: list[Unit]
    version: str
    disk_free_bytes: int | None
    disk_bytes: int | None
    load: float | None
    cpus: int | None
    clock_offset_seconds: float
    clock_error_seconds: float
    certificates: list[Certificate]


def status_of(shell: Shell, clock: Callable[[], float]) -> HostStatus:
    """Asks a host how it is; takes a few hundred milliseconds.

    Args:
        clock: ours, seconds since 1970.

    Raises:
        KestrelError: it does not answer in the expected way.
    """
    offset, error = clock_offset(shell, clock)
    ran = shell.run(_SCRIPT, timeout_seconds=_TIMEOUT_SECONDS)
    found = dict(_sections(ran.stdout))
    if ran.status or not set(found) >= _SECTIONS:
        raise KestrelError("it does not say how it is", cause=ran.stderr.strip() or None)
    try:
        return _read(found, offset, error)
    except ValueError as reason:
        raise KestrelError("it does not say how it is", cause=str(reason)) from None


def _read(found: Mapping[str, str], offset: float, error: float) -> HostStatus:
    disk = [parse_digits(word) for word in found["disk"].rstrip().rpartition("\n")[2].split()]
    free, whole = disk if len(disk) == 2 else (None, None)
    load = found["load"].split()
    return HostStatus(
        units=read_units(found["units"]),
        version=found["version"].strip().removeprefix("kestrelctl "),
        disk_free_bytes=free,
        disk_bytes=whole,
        load=float(load[0]) if load else None,
        cpus=int(load[-1]) if load else None,
        clock_offset_seconds=offset,
        clock_error_seconds=error,
        certificates=[
            Certificate(file, ssl.cert_time_to_seconds(end))
            for file, end in re.findall(r"^(.+) notAfter=(.+)$", found["certificates"], re.M)
        ],
    )


def clock_offset(shell: Shell, clock: Callable[[], float]) -> tuple[float, float]:
    """Measures how far a host's clock is ahead, and the error: half of the round trip; seconds.

    As in NTP (RFC 5905, 8): the host's time is taken to be that of the middle of the exchange.

    Raises:
        KestrelError: it does not tell the time.
    """
    heard: list[tuple[float, str]] = []
    asked_at = clock()
    shell.run(
        "date +%s.%N", as_root=False, timeout_seconds=_TIMEOUT_SECONDS,
        on_line=lambda line: heard.append((clock(), line)),
    )  # fmt: skip
    if not heard or not _MOMENT.fullmatch(heard[0][1]):
        raise KestrelError("it does not tell the time")
    heard_at, told = heard[0]
    return float(told) - (asked_at + heard_at) / 2, (heard_at - asked_at) / 2


def _sections(told: str) -> list[tuple[str, str]]:
    parts = re.split(rf"^{_SECTION}(\w+)\n", told, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))
