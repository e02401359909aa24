"""The accounts a worker logs in with."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kestrelctl.errors import UsageError


def read_credentials(path: Path, sessions: int, host: str) -> list[tuple[str, str]]:
    """Reads the full JID and the password of each session.

    The resource is the machine's name unless the file gives one: a worker keeps its address over
    reconnects and restarts, and two machines with the same account are two workers.

    Args:
        path: a file with one `JID PASSWORD` a line, readable by its owner alone, or handed over by
            systemd, which sees to that (systemd.exec(5), LoadCredential=). `-` is standard input:
            a file that the service manager opened there need not be readable by this user, nor by
            the tasks that run as the same user.

    Raises:
        UsageError: it cannot be read, others can read it, or a line has another form.
    """
    try:
        text = sys.stdin.read() if str(path) == "-" else _read_private(path)
    except UnicodeDecodeError:
        text = ""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if not lines or any(len(line) != 2 or "@" not in line[0] for line in lines):
        raise UsageError(f"{path} holds no credentials", hint="one `JID PASSWORD` a line")
    if len(lines) >= sessions:
        return [(_with_resource(jid, host), password) for jid, password in lines[:sessions]]
    jid, password = lines[0]
    full = _with_resource(jid, host)
    return [(f"{full}-{number}", password) for number in range(1, sessions + 1)]


def _read_private(path: Path) -> str:
    try:
        if path.stat().st_mode & 0o077 and not _of_systemd(path):
            raise UsageError(
                f"the credentials {path} can be read by others", hint=f"chmod 600 {path}"
            )
        return path.read_text()
    except OSError as error:
        raise UsageError(f"the credentials {path} cannot be read", cause=error.strerror) from error


def _of_systemd(path: Path) -> bool:
    directory = os.environ.get("CREDENTIALS_DIRECTORY", "")
    return directory != "" and path.resolve().is_relative_to(Path(directory).resolve())


def _with_resource(jid: str, host: str) -> str:
    return jid if "/" in jid else f"{jid}/{host}"
