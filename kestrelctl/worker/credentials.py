"""The accounts a worker logs in with."""

from __future__ import annotations

from pathlib import Path

from kestrelctl.errors import UsageError


def read_credentials(path: Path, sessions: int, host: str) -> list[tuple[str, str]]:
    """Full JID and password for each session.

    The resource is the machine's name unless the file gives one: a worker keeps its address over
    reconnects and restarts, and two machines with the same account are two workers.

    Args:
        path: a file with one `JID PASSWORD` a line, readable by its owner alone.

    Raises:
        UsageError: it cannot be read, others can read it, or a line has another form.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise UsageError(
                f"the credentials {path} can be read by others", hint=f"chmod 600 {path}"
            )
        lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
    except OSError as error:
        raise UsageError(f"the credentials {path} cannot be read", cause=error.strerror) from error
    if not lines or any(len(line) != 2 or "@" not in line[0] for line in lines):
        raise UsageError(f"{path} holds no credentials", hint="one `JID PASSWORD` a line")
    if len(lines) >= sessions:
        return [(_with_resource(jid, host), password) for jid, password in lines[:sessions]]
    jid, password = lines[0]
    full = _with_resource(jid, host)
    return [(f"{full}-{number}", password) for number in range(1, sessions + 1)]


def _with_resource(jid: str, host: str) -> str:
    return jid if "/" in jid else f"{jid}/{host}"
