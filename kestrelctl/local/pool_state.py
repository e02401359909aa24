"""The directories of local pools, and the published state of a running one."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec

from kestrelctl.errors import KestrelError, UsageError

#: The most bytes of a pool's name, which is the name of a directory, and part of a domain.
MOST_NAME_BYTES = 63


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
    #: By process id, the mark that tells each of these processes from a later one with its number.
    marks: dict[int, str] = {}
    own_directories: bool = False  #: its workers run tasks in the directory that a job names


def user_directory(variable: str, below_home: str) -> Path:
    """A directory of the user by the XDG Base Directory Specification, for which a relative one is
    as good as none.

    Args:
        variable: of the environment, which names it.
        below_home: its usual place.

    Raises:
        UsageError: nothing says where it is.
    """
    named = os.environ.get(variable, "")
    if os.path.isabs(named):
        return Path(named)
    try:
        return Path.home() / below_home
    except RuntimeError:
        raise UsageError(
            "it is not known where your files are",
            cause="HOME is not set, and this user has no account on this machine",
            hint="export HOME=DIR",
        ) from None


def pools_directory() -> Path:
    """The directory of local pools."""
    return user_directory("XDG_STATE_HOME", ".local/state") / "kestrel" / "pools"


def workers_directory() -> Path:
    """The directory of the pools that this machine has joined, by the same specification."""
    return pools_directory().parent / "workers"


def pool_directory(name: str) -> Path:
    """The directory of a pool.

    Raises:
        UsageError: the name cannot be one.
    """
    if not name or name.startswith(".") or not all(c.isalnum() or c in "-_." for c in name):
        raise UsageError(f"{name!r} cannot be the name of a pool", hint="use letters, digits and -")
    size_bytes = len(name.encode())
    if size_bytes > MOST_NAME_BYTES:
        raise UsageError(
            "this name of a pool is too long",
            cause=f"it has {size_bytes:,} bytes; a pool's name has {MOST_NAME_BYTES} at most",
        )
    return pools_directory() / name


def manager_directory(name: str) -> Path:
    """The directory in which the manager of a pool keeps its store.

    Raises:
        UsageError: the name cannot be one.
    """
    return pool_directory(name) / "manager"


def pool_directories() -> list[Path]:
    """The directories of this user's pools that run here or have left something, by name."""
    try:
        names = sorted(os.listdir(pools_directory()))
    except OSError:  # there are none yet, or none can be where they should be
        return []
    found = (pools_directory() / name for name in names)
    return [directory for directory in found if directory.is_dir()]


def known_pools() -> list[str]:
    """The pools of this user that run here or have left something, by name."""
    return [directory.name for directory in pool_directories()]


def read_state(directory: Path) -> PoolState | None:
    """The pool that runs in a directory; None if none does, or it is still starting."""
    state = last_state(directory)
    return state if state is not None and is_of_pool(state, state.pid) else None


def last_state(directory: Path) -> PoolState | None:
    """The pool that runs in a directory, or did when it crashed; None if it was stopped.

    A copy of the directory of a pool has the file, too, but its processes are those of that pool.
    """
    try:
        state = msgspec.json.decode((directory / "pool.json").read_bytes(), type=PoolState)
        is_copy = not Path(state.password_file).parent.samefile(directory)
    except (OSError, ValueError):
        return None
    return None if is_copy else state


def processes_of(state: PoolState) -> list[int]:
    """The processes that the state of a pool names, the supervisor first."""
    told = (state.pid, state.server_pid, state.manager_pid, *state.worker_pids)
    return [pid for pid in told if pid]


def is_of_pool(state: PoolState, pid: int) -> bool:
    """Whether a process of a pool still runs, and its number was not given to another since."""
    if not is_alive(pid):
        return False
    return not state.marks or state.marks.get(pid) == process_mark(pid)


def process_mark(pid: int) -> str:
    """Returns a mark that no other process with this number ever has: the boot of the machine, and
    when it started (proc_pid_stat(5), field 22). Empty where the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return f"{boot} {fields[19]}"


def is_alive(pid: int) -> bool:
    """Whether a process runs (one that has ended and waits to be reaped does not)."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except ProcessLookupError:  # It was reaped since the file was opened (proc(5): ESRCH).
        return False
    except FileNotFoundError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not Path("/proc/self").exists()


def claim_pool(directory: Path) -> int:
    """Takes the directory of a pool for this process: its supervisor, or one that clears it up.

    Returns:
        An open file; closing it, or the end of the process, releases the directory.

    Raises:
        UsageError: another process has it.
        KestrelError: its file system has no locks.
    """
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UsageError(
            f"the pool {directory.name} is starting or stopping, or runs on another machine",
            cause=f"a process has the lock of {directory}",
            hint="try again in a moment",
        ) from None
    except OSError as error:
        os.close(lock)
        raise KestrelError(f"{directory} cannot be locked", cause=error.strerror) from error
    return lock


def remove_state(directory: Path) -> None:
    """Removes the published state of a pool that does not run; what it has stored stays."""
    (directory / "pool.json").unlink(missing_ok=True)


def write_state(directory: Path, state: PoolState) -> None:
    """Publishes a pool, in one step."""
    draft = directory / "pool.json.new"
    draft.write_bytes(msgspec.json.encode(state))
    draft.chmod(0o600)
    draft.replace(directory / "pool.json")


def state_marks(directory: Path) -> tuple[int, int]:
    """Returns marks of the published file, which differ for another one in its place; (0, 0) if
    there is none."""
    try:
        found = (directory / "pool.json").stat()
    except OSError:
        return (0, 0)
    return found.st_ino, found.st_mtime_ns
