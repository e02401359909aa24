"""Where local pools are, and what is known of a running one."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from kestrelctl.errors import UsageError


class PoolState(msgspec.Struct, frozen=True, kw_only=True):
    """A running local pool, as written to `pool.json` in its directory."""

    name: str
    pid: int  #: of the supervisor
    domain: str
    host: str
    port: int
    user: str
    password_file: str
    admin: str
    admin_password_file: str
    workers: int
    server_pid: int
    manager_pid: int
    worker_pids: list[int]
    metrics: str = ""  #: page of the manager for Prometheus; empty if there is none
    worker_metrics: list[str] = []  #: of each worker process
    server_metrics: str = ""  #: of the XMPP server


def pools_directory() -> Path:
    """Where local pools live (XDG Base Directory Specification)."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "kestrel" / "pools"


def workers_directory() -> Path:
    """Where the pools are kept that this machine has joined, likewise."""
    return pools_directory().parent / "workers"


def pool_directory(name: str) -> Path:
    """The directory of a pool.

    Raises:
        UsageError: the name cannot be one.
    """
    if not name or name.startswith(".") or not all(c.isalnum() or c in "-_." for c in name):
        raise UsageError(f"{name!r} cannot be the name of a pool", hint="use letters, digits and -")
    return pools_directory() / name


def read_state(directory: Path) -> PoolState | None:
    """The pool that runs in a directory; None if none does, or it is still starting."""
    try:
        state = msgspec.json.decode((directory / "pool.json").read_bytes(), type=PoolState)
    except (OSError, msgspec.DecodeError):
        return None
    return state if is_alive(state.pid) else None


def is_alive(pid: int) -> bool:
    """Whether a process runs (one that has ended and waits to be reaped does not)."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not Path("/proc/self").exists()


def write_state(directory: Path, state: PoolState) -> None:
    """Publishes a pool, in one step."""
    draft = directory / "pool.json.new"
    draft.write_bytes(msgspec.json.encode(state))
    draft.chmod(0o600)
    draft.replace(directory / "pool.json")
