"""Bubblewrap in a control group for each sandbox, within the tree that systemd delegates.

Source: the kernel's cgroup-v2.rst ("Delegation", "No Internal Process Constraint") and systemd's
CGROUP_DELEGATION.md. A group with processes of its own cannot pass controllers on, so the worker
moves itself (and its keeper) into a group below its unit's first.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kestrelctl.core.model.end_reason import EndKind
from kestrelctl.errors import KestrelError
from kestrelctl.worker.isolation.bubblewrap import Bubblewrap
from kestrelctl.worker.isolation.file_view import FileView
from kestrelctl.worker.isolation.rung import Ending, Start, TaskLimits
from kestrelctl.worker.launch.launcher import Launch

CONTROLLERS = ("memory", "pids")
_OWN_GROUP = "worker"
#: Joins the group before it becomes bwrap, so that no process of the task was ever outside.
_JOIN = 'echo 0 >"$0" && exec "$@"'


def own_group(root: Path = Path("/")) -> Path:
    """The directory of this process's control group (v2).

    Raises:
        KestrelError: there is none.
    """
    group = mounted = None
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            group = line[3:]
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            mounted = before.split(" ")[4]
    if group is None or mounted is None:
        raise KestrelError("there are no control groups of version 2 here")
    return Path(mounted) / group.lstrip("/")


class TaskGroups:
    """A control group for each sandbox.

    Args:
        unit: the group that is delegated to this process.
        controllers: what the groups are to limit.

    Raises:
        KestrelError: it is not delegated, or lacks a controller.
    """

    def __init__(self, unit: Path, controllers: Sequence[str] = CONTROLLERS) -> None:
        self._tasks = unit / "tasks"
        self._controllers = controllers
        self._made: set[str] = set()
        self._before: dict[str, _Counters] = {}
        try:
            self._delegate(unit)
        except OSError as error:
            raise KestrelError(
                f"the control group {unit} is not this worker's to divide",
                cause=f"{error.strerror}: {error.filename}",
                hint="as a service with Delegate=yes it is",
            ) from error

    def _delegate(self, unit: Path) -> None:
        there = (unit / "cgroup.controllers").read_text().split()
        missing = [name for name in self._controllers if name not in there]
        if missing:
            raise KestrelError(f"the control group {unit} has no controller {missing[0]}")
        members = (unit / "cgroup.procs").read_text().split()
        strangers = {int(pid) for pid in members} - {
            os.getpid(),
            os.getppid(),
        }  # that is the keeper
        if strangers:
            raise KestrelError(
                f"the control group {unit} is not this worker's alone",
                cause=f"process {min(strangers)} is in it",
            )
        own = unit / _OWN_GROUP
        own.mkdir(exist_ok=True)
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                (own / "cgroup.procs").write_text(pid)
        self._tasks.mkdir(exist_ok=True)
        for left in [group for group in self._tasks.iterdir() if group.is_dir()]:
            (left / "cgroup.kill").write_text("1")  # of a worker that was killed
        for group in (unit, self._tasks):
            if self._controllers:
                enabled = " ".join(f"+{name}" for name in self._controllers)
                (group / "cgroup.subtree_control").write_text(enabled)

    def prepare(self, name: str, limits: TaskLimits) -> Path:
        """Prepares the group of a sandbox, with the limits of its next task.

        Raises:
            OSError: it cannot be made.
        """
        group = self._tasks / name
        if name not in self._made:
            group.mkdir(exist_ok=True)
            # A task may mount control groups in namespaces of its own. A group that it leaves below
            # would keep this one, with the counters of this task, for the next.
            (group / "cgroup.max.descendants").write_text("0")
            self._made.add(name)
        if "memory" in self._controllers:
            most = str(limits.memory_bytes) if limits.memory_bytes else "max"
            (group / "memory.max").write_text(most)
            (group / "memory.oom.group").write_text("1")
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap
                (group / "memory.swap.max").write_text("0")
        if "pids" in self._controllers:
            (group / "pids.max").write_text(str(limits.processes))
        self._before[name] = _counters(group)
        return group

    def kill(self, name: str) -> None:
        """Ends every process in the group of a sandbox (Linux 5.14)."""
        with contextlib.suppress(OSError):
            (self._tasks / name / "cgroup.kill").write_text("1")

    def finish(self, name: str) -> tuple[bool, int]:
        """Kills what is left in the group of a sandbox, and lets it be made anew.

        Returns:
            Whether the kernel had to kill for want of memory, and the peak of memory in bytes; 0
            if an earlier task in the same group had more.
        """
        group = self._tasks / name
        self.kill(name)
        kills, peak_bytes = _counters(group)
        kills_before, peak_before = self._before.pop(name, _Counters(0, 0))
        with contextlib.suppress(OSError):  # a dying process is still in it: it is used again
            group.rmdir()
            self._made.discard(name)
        return kills > kills_before, peak_bytes if peak_bytes > peak_before else 0


class ControlGroup(Bubblewrap):
    """Rung `systemd`: bubblewrap, and the kernel's limits of memory and processes."""

    name = "systemd"
    own_failures = frozenset({1, 2, 126, 127})  # with those of the shell
    has_kernel_limits = True

    def __init__(
        self, view: FileView, groups: TaskGroups, program: str | None = None, init: str = ""
    ) -> None:
        super().__init__(view, program, init)
        self._groups = groups

    def launch(self, place: str, start: Start) -> Launch:
        try:
            group = self._groups.prepare(os.path.basename(place), start.limits)
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
            raise OSError(errno.EAGAIN, why) from error  # the task is not to blame
        launch = super().launch(place, start)
        joining = ("sh", "-c", _JOIN, f"{group}/cgroup.procs", launch.program, *launch.argv[1:])
        return launch._replace(program="/bin/sh", argv=joining)

    def ended(self, place: str, code: int, *, asked: bool) -> Ending:
        ending = super().ended(place, code, asked=asked)
        out_of_memory, peak_bytes = self._groups.finish(os.path.basename(place))
        if out_of_memory:
            ending = ending._replace(reason=EndKind.MEMORY_LIMIT.text("killed by the kernel"))
        return ending._replace(peak_bytes=peak_bytes)


class _Counters(NamedTuple):
    """The counters of a group, which go on where it is used again."""

    kills: int
    peak_bytes: int


def _counters(group: Path) -> _Counters:
    return _Counters(_field(group / "memory.events", "oom_kill"), _number(group / "memory.peak"))


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


def _field(file: Path, name: str) -> int:
    try:
        fields = dict(line.split() for line in file.read_text().splitlines())
    except OSError:
        return 0
    return int(fields.get(name, 0))
