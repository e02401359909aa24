"""A diagnostics bundle: what `onhost` collected on each host, in one archive."""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path, PurePosixPath

import msgspec

from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.fleet.restart import installed
from kestrelctl.fleet.shell import Shell
from kestrelctl.fleet.units import UNITS

_TIMEOUT_SECONDS = 300
#: The most that a host may send, unpacked: a few megabytes are usual.
MAX_COLLECTED_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Collected:
    """The files that a host sent.

    Attributes:
        files: text by path.
        failed: the reason why something is missing, by its name.
    """

    files: dict[str, str]
    failed: dict[str, str] = field(default_factory=dict)


def collect_from(shell: Shell, *, hours: float, journal_bytes: int) -> Collected:
    """Collects on a host.

    Args:
        hours: how far back its journals go.
        journal_bytes: the most that is sent of each.

    Raises:
        KestrelError: it could not be done there.
    """
    units = installed(shell, UNITS)
    program = files("kestrelctl.fleet").joinpath("onhost.py").read_text(encoding="utf-8")
    options = {"units": units, "hours": hours, "journal_bytes": journal_bytes}
    command = shlex.join(["python3", "-I", "-c", program, json.dumps(options)])
    ran = shell.run(command, timeout_seconds=_TIMEOUT_SECONDS)
    if ran.status:
        lines = ran.stderr.strip().splitlines() or ["it wrote nothing"]
        raise KestrelError("collecting failed", cause=lines[-1])
    try:
        unpacking = zlib.decompressobj()
        packed = base64.b64decode(ran.stdout, validate=False)
        text = unpacking.decompress(packed, MAX_COLLECTED_BYTES)
        if not unpacking.eof:
            raise ValueError(f"it is cut off, or more than {MAX_COLLECTED_BYTES:,} bytes")
        return msgspec.json.decode(text, type=Collected)
    except (ValueError, RecursionError, zlib.error, msgspec.DecodeError) as error:
        raise KestrelError("what it sent cannot be read", cause=str(error)) from None


class Archive:
    """A `.tar.gz` with one directory for each host and an index; only its owner may read it."""

    def __init__(self, path: Path, *, made_at: float) -> None:
        """Args:
        made_at: seconds since 1970.

        Raises:
            UsageError: it cannot be written, or is there already.
        """
        self._made_at = made_at
        self._top = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
        self._index: dict[str, object] = {}
        try:
            path.touch(mode=0o600, exist_ok=False)
            self._tar = tarfile.open(path, "w:gz")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise UsageError(f"{path} cannot be written", cause=error.strerror) from None

    def add(self, host: str, collected: Collected) -> None:
        """Adds a host's files."""
        for name, text in sorted(collected.files.items()):
            self._write(f"{_directory(host)}/{_inside(name)}", text)
        self._index[host] = {
            "directory": _directory(host),
            "files": sorted(collected.files),
            "failed": collected.failed,
        }

    def add_failure(self, host: str, error: KestrelError) -> None:
        """Notes that a host gave nothing."""
        self._index[host] = {"error": error.message, "cause": error.cause}

    def close(self) -> None:
        """Writes the index and ends the archive."""
        index = {"made_at": self._made_at, "hosts": dict(sorted(self._index.items()))}
        self._write("index.json", json.dumps(index, indent=2) + "\n")
        self._tar.close()

    def _write(self, name: str, text: str) -> None:
        data = text.encode(errors="replace")
        entry = tarfile.TarInfo(f"{self._top}/{name}")
        entry.size, entry.mtime, entry.mode = len(data), int(self._made_at), 0o600
        self._tar.addfile(entry, io.BytesIO(data))


def _directory(host: str) -> str:
    return re.sub(r"[^\w.-]", "_", host).lstrip(".") or "_"


def _inside(name: str) -> str:
    """The path without the parts that would lead out of the directory where it is unpacked."""
    parts: Sequence[str] = [p for p in PurePosixPath(name).parts if p not in ("/", "..", ".")]
    return "/".join(parts) or "_"
