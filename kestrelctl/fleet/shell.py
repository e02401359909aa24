"""The port to one host: runs commands that end with the connection and never ask for input."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Protocol

import msgspec

from kestrelctl.fleet.host import Host

#: How long `timeout` waits between SIGTERM and SIGKILL.
KILL_AFTER_SECONDS = 5
#: Statuses of `timeout` (coreutils): the time was up; SIGKILL was needed.
_TIMED_OUT = (124, 128 + 9)

#: Its standard input is the life-line: nothing is ever written to it, and when it ends, because
#: the connection has, the command is ended too. `timeout` gives the command a process group of
#: its own; all of it is signalled: `timeout` cannot pass on a signal that comes while it forks.
_LIFELINE = """\
exec 3<&0 </dev/null
{timeout} {command} 3<&- &
child=$!
( read -r never <&3; kill -TERM -$child || kill -TERM $child; ) >/dev/null 2>&1 &
line=$!
wait $child
status=$?
kill $line 2>/dev/null
exit $status"""

_AS_ROOT = 'if [ "$(id -u)" != 0 ]; then set -- sudo -n -- "$@"; fi; exec "$@"'


class Ran(msgspec.Struct, frozen=True):
    """The result of a command; `stdout` is empty if it was passed on line by line."""

    status: int
    stdout: str
    stderr: str
    seconds: float


class Shell(Protocol):
    """Runs commands on one host."""

    @property
    def host(self) -> Host:
        """The host on which commands run."""
        ...

    def run(
        self,
        command: str,
        *,
        as_root: bool = True,
        timeout_seconds: float | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> Ran:
        """Runs a command of `sh` with no standard input and no terminal.

        Args:
            as_root: through `sudo -n` if the login is not root's.
            on_line: gets each line of standard output as it comes, without its end.

        Raises:
            TimedOut: it was ended because its time was up.
            Unreachable: the connection broke.
        """
        ...

    def close(self) -> None:
        """Ends the connection and what runs over it; may be called by any thread, repeatedly."""
        ...


#: Opens the way to a host; raises Unreachable if there is none.
Connect = Callable[[Host], Shell]


def whole_command(command: str, *, as_root: bool, timeout_seconds: float | None) -> str:
    """The command line that runs a command of `sh` the way that `Shell.run` promises."""
    timeout = f"timeout --kill-after={KILL_AFTER_SECONDS} {timeout_seconds or 0:g}"
    script = _LIFELINE.format(timeout=timeout, command=shlex.join(["sh", "-c", command]))
    if as_root:
        return shlex.join(["sh", "-c", _AS_ROOT, "sh", "sh", "-c", script])
    return shlex.join(["sh", "-c", script])


def timed_out(status: int, seconds: float, timeout_seconds: float | None) -> bool:
    """Whether the status of a whole command says that its time was up."""
    return timeout_seconds is not None and status in _TIMED_OUT and seconds >= timeout_seconds


class Lines:
    """A stream that cuts what is written to it into lines."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._rest = ""

    def write(self, text: str) -> None:
        """Passes on the lines that are complete now."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._on_line(line)

    def flush(self) -> None:
        """Does nothing: lines are passed on as soon as they end."""

    def finish(self) -> None:
        """Passes on a last line that has no end."""
        if self._rest:
            self._on_line(self._rest)
            self._rest = ""
