"""Plays Molecule's scenarios in the background, while other tests run."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

CHECKOUT = Path(__file__).parents[2]
NAMES = sorted(file.parent.name for file in CHECKOUT.glob("tests/molecule/*/molecule.yml"))

#: One for each processor of a small machine.
AT_ONCE = 2
#: This one takes as long as all others together, so it begins first.
LONGEST = "pool"
#: A scenario takes no longer, on however busy a machine: the longest took half an hour beside
#: another one and all that computes.
HANGS_SECONDS = 3000.0
#: So many lines of what a scenario said are shown of one that failed.
END_LINES = 120


class Played(NamedTuple):
    """How a scenario ended: its exit status and what it said; no status is of one that hung."""

    status: int | None
    said: str

    @property
    def end(self) -> str:
        """The last that it said, without the lines of waiting: what went wrong stands there."""
        lines = [line for line in self.said.splitlines() if "FAILED - RETRYING" not in line]
        return "\n".join(lines[-END_LINES:])


class Scenarios:
    """Scenarios that are being played, each on hosts of its own.

    Attributes:
        played: how each ends, by its name.
    """

    def __init__(
        self, names: list[str], command: tuple[str, ...] = (str(CHECKOUT / "kestrel"), "molecule")
    ) -> None:
        self._command = command
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._closed = False
        self._pool = ThreadPoolExecutor(AT_ONCE)
        ordered = sorted(names, key=lambda name: name != LONGEST)
        self.played: dict[str, Future[Played]] = {
            name: self._pool.submit(self._play, name) for name in ordered
        }

    def _play(self, name: str) -> Played:
        with subprocess.Popen(
            [*self._command, "test", "--scenario-name", name],
            env={**os.environ, "NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1"},
            stdin=subprocess.DEVNULL,  # Ansible wants one that blocks
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            self._running[name] = process
            if self._closed:
                end_with_all_below(process)
            try:
                said, _ = process.communicate(timeout=HANGS_SECONDS)
            except subprocess.TimeoutExpired:
                end_with_all_below(process)
                said, _ = process.communicate()
                self._destroy(name)
                return Played(None, said)
            finally:
                del self._running[name]
            return Played(process.returncode, said)

    def close(self) -> None:
        """Ends what still runs, and removes its hosts: nobody waits for it any more."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        left = dict(self._running)
        for process in left.values():
            end_with_all_below(process)
        self._pool.shutdown()
        for name in left:
            self._destroy(name)

    def _destroy(self, name: str) -> None:
        """Removes the hosts of a scenario that did not come to its own end."""
        subprocess.run([*self._command, "destroy", "--scenario-name", name], check=False)


def end_with_all_below(process: subprocess.Popen[str]) -> None:
    """Kills a process and all that it has started."""
    try:
        top = psutil.Process(process.pid)
        below = top.children(recursive=True)
    except psutil.NoSuchProcess:
        return
    for each in (top, *below):
        with suppress(psutil.NoSuchProcess):
            each.kill()
