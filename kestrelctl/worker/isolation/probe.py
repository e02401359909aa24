"""Finds out, by running something, which rungs of the ladder work on this machine."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from kestrelctl.core.model.worker.isolation import RUNGS
from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.worker.isolation.bubblewrap import Bubblewrap
from kestrelctl.worker.isolation.control_group import ControlGroup, TaskGroups, own_group
from kestrelctl.worker.isolation.file_view import FileView
from kestrelctl.worker.isolation.namespace import Namespace
from kestrelctl.worker.isolation.plain import Plain
from kestrelctl.worker.isolation.rung import Rung, Start, TaskLimits
from kestrelctl.worker.launch.python_launcher import options_of

log = logging.getLogger(__name__)

AUTO = "auto"

_LIMITS = TaskLimits(memory_bytes=256 << 20)
#: Says what a task could do that its rung promises to prevent. The init is process 1, and sees the
#: shell below it: so a new /proc is there, and it is the namespace's.
_CHECK_PROCESSES = '[ -r /proc/1/cmdline ] && [ $$ -lt 10 ] || echo "no process namespace"'
_CHECK_FILES = """
: >here || echo "its scratch directory cannot be written"
: >/tmp/here || echo "/tmp cannot be written"
[ -e "$0" ] && echo "$0 is visible"
( : >"$1/there" ) 2>/dev/null && echo "$1 can be written"
exit 0
"""

_HINTS = {
    "systemd": "run the worker as a service with Delegate=yes, on a machine with control groups v2",
    "bubblewrap": "install bubblewrap, and let users make namespaces (user.max_user_namespaces)",
    "namespace": "let users make namespaces: sysctl user.max_user_namespaces, "
    "kernel.apparmor_restrict_unprivileged_userns=0",
}


class DoesNotWork(KestrelError):
    """A rung does not work here; the cause says why."""


def choose(wanted: str, data_dir: Path, view: FileView, init: Path | None = None) -> Rung:
    """Chooses the rung of that name; for `auto` the best that works.

    Args:
        data_dir: of the worker.
        view: what tasks are to see of files, where the rung can keep anything from them.
        init: our program that is the first in a namespace, if it was built.

    Raises:
        UsageError: that rung does not work here.
    """
    groups = functools.cache(lambda: TaskGroups(own_group()))  # it moves this process: once
    rungs: Mapping[str, Callable[[str], Rung]] = {
        "systemd": lambda init: _bubblewrap(
            ControlGroup(view, groups(), _installed("bwrap"), init), data_dir
        ),
        "bubblewrap": lambda init: _bubblewrap(
            Bubblewrap(view, _installed("bwrap"), init), data_dir
        ),
        "namespace": _namespace,
        "plain": lambda _: Plain(),
    }
    for name in RUNGS if wanted == AUTO else (wanted,):
        try:
            return _made(rungs[name], str(init or ""))
        except (KestrelError, OSError) as error:
            why = _cause(error)
            if wanted != AUTO:
                raise UsageError(
                    f"isolation {name!r} does not work on this machine",
                    cause=why,
                    hint=f"{_HINTS[name]}; or --isolation auto takes the best that works",
                ) from error
            log.info("isolation %s does not work here: %s", name, why)
    raise AssertionError("plain always works")


def _made(make: Callable[[str], Rung], init: str) -> Rung:
    """Makes a rung that works: rather without our init than a weaker one."""
    if init:
        try:
            return make(init)
        except DoesNotWork as error:
            log.info("tasks have no init of ours: %s", _cause(error))
    return make("")


def _cause(error: Exception) -> str:
    if isinstance(error, KestrelError):
        return f"{error.message}: {error.cause}" if error.cause else error.message
    return str(error)


def _installed(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise DoesNotWork(f"{program} is not installed")
    return found


def _namespace(init: str) -> Rung:
    rung = Namespace(_installed("unshare"), init)
    _check(rung, _CHECK_PROCESSES, ())
    return rung


def _bubblewrap(rung: Bubblewrap, data_dir: Path) -> Rung:
    with tempfile.NamedTemporaryFile(dir=data_dir) as secret:
        _check(rung, _CHECK_PROCESSES + _CHECK_FILES, (secret.name, "/usr"), data_dir)
    return rung


def _check(rung: Rung, script: str, words: tuple[str, ...], data_dir: Path | None = None) -> None:
    """Runs a script under a rung. DoesNotWork if it fails, or finds something."""
    with tempfile.TemporaryDirectory(prefix="probe-", dir=data_dir) as place:
        Path(place, "scratch").mkdir()
        argv = ("sh", "-c", script, *words)
        env = {"PATH": os.defpath}
        launch = rung.launch(place, Start("/bin/sh", argv, env, _LIMITS))
        output = Path(place, "output")
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with options_of(launch, place) as options:
            pid = os.posix_spawn(
                launch.program,
                launch.argv,
                launch.env,
                file_actions=(
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(output), append, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                    *options,
                ),
                setsid=True,
            )
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        rung.ended(place, code, asked=True)
        said = output.read_text(errors="replace").strip()
    if code or said:
        raise DoesNotWork(said or f"the sandbox ended with status {code}")
