"""The environments that there are, as their hosts say, or that were ordered and not heard of yet.

The hosts are right: a manager that was started anew knows nothing, and learns from the first
message of each host what is there. So nothing is stored, and nothing is started twice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from kestrelctl.core.environments.started import Environment, EnvironmentPhase
from kestrelctl.protocol.workers import EnvironmentsHere

#: The beginning of the names of environments' workers; no others should begin so.
WORKER_PREFIX = "env-"
#: The name of a class, as `class_files` takes it.
_CLASS = re.compile(r"[a-z][a-z0-9_-]{0,31}")


#: Each start of a manager gives so many numbers at most; the first one gives none below.
FIRST_NUMBER = 1 << 20
#: A node that has run for so long counts as one that works.
NODE_SETTLES_SECONDS = 10.0


def worker_name(of: str, number: int) -> str:
    """Makes the name of an environment's worker: `env-gpu-2k5`."""
    digits, rest = "", number
    while rest:
        rest, digit = divmod(rest, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return f"{WORKER_PREFIX}{of.replace('_', '-')}-{digits or '0'}"


class EnvironmentTable:
    """The environments of a pool.

    Args:
        epoch: the number of this start of the manager: the numbers of different starts differ.
    """

    def __init__(self, epoch: int) -> None:
        self.known: dict[int, Environment] = {}
        #: Environments that were starting when their hosts vanished: nobody waits for them any
        #: more. What is left of one is stopped when its host is back, unless its worker has joined
        #: before.
        self.given_up: dict[int, Environment] = {}
        #: The kinds that each host makes that has said something.
        self.kinds: dict[str, frozenset[str]] = {}
        self._next = epoch * FIRST_NUMBER

    def order(
        self, of: str, host: str, now: float, *, asked_for: bool, node: bool = False
    ) -> Environment:
        """Notes that an environment is to be started."""
        self._next += 1
        found = Environment(
            number=self._next,
            of=of,
            host=host,
            phase=EnvironmentPhase.STARTING,
            since=now,
            worker=worker_name(of, self._next),
            asked_for=asked_for,
            node=node,
        )
        self.known[found.number] = found
        return found

    def heard(self, host: str, said: EnvironmentsHere, now: float) -> list[tuple[Environment, str]]:
        """Takes in what a host has said.

        Returns:
            The environments that have gone, each with why; empty if the pool asked for it.
        """
        self.kinds[host] = frozenset(said.kinds)
        for each in said.here:
            if not _CLASS.fullmatch(each.of) or each.number >= self.numbers_below:
                continue  # Nobody has ordered that.
            if each.number in self.given_up:
                continue
            found = self.known.get(each.number)
            if found is None:
                found = self.known[each.number] = Environment(
                    number=each.number,
                    of=each.of,
                    host=host,
                    phase=EnvironmentPhase.STARTING,
                    since=now,
                    # Not as the host says: the account of that name is deleted in the end.
                    worker=worker_name(each.of, each.number),
                    asked_for=each.asked_for,
                    node=each.node,
                )
            if found.host != host:
                continue
            found.held = True
            if found.node and not each.starts and found.phase is EnvironmentPhase.STARTING:
                found.phase, found.since = EnvironmentPhase.READY, now
        gone: list[tuple[Environment, str]] = []
        for end in said.ended:
            found = self.known.get(end.number)
            if found is not None and found.host == host:
                del self.known[end.number]
                gone.append((found, end.why))
        there = {each.number for each in said.here}
        for found in self.of_host(host):
            if found.held and found.number not in there:
                del self.known[found.number]
                gone.append((found, "its host has started anew"))
        for found in self._given_up_at(host):
            if found.number not in there:
                del self.given_up[found.number]
                gone.append((found, ""))
        return gone

    def give_up(self, number: int) -> None:
        """Gives up an environment whose host has vanished while it started."""
        self.given_up[number] = self.known.pop(number)

    def _given_up_at(self, host: str) -> list[Environment]:
        return [each for each in self.given_up.values() if each.host == host]

    def forget_host(self, host: str) -> list[Environment]:
        """Forgets a host that has gone, and what was there with it; returns that."""
        self.kinds.pop(host, None)
        gone = [*self.of_host(host), *self._given_up_at(host)]
        for each in gone:
            self.known.pop(each.number, None)
            self.given_up.pop(each.number, None)
        return gone

    @property
    def numbers_below(self) -> int:
        """A number above all numbers of the managers of this pool."""
        return self._next + 1

    def of_host(self, host: str) -> list[Environment]:
        """The environments on one host."""
        return [each for each in self.known.values() if each.host == host]

    def see_workers(
        self, idle: Iterable[tuple[str, bool]], now: float, draining: Collection[str] = ()
    ) -> list[Environment]:
        """Notes which environments' workers are there.

        Args:
            idle: for the workers that are online the name of the account, and whether it has
                nothing to do.
            draining: those of them that get nothing new.

        Returns:
            The environments that have been given work for the first time, or have begun to count as
            nodes that work: whether these have anything to do is not seen here.
        """
        there = dict(idle)
        for each in [each for each in self.given_up.values() if each.worker in there]:
            self.known[each.number] = self.given_up.pop(each.number)
        useful: list[Environment] = []
        for each in self.known.values():
            if each.node:
                runs = each.phase is EnvironmentPhase.READY and not each.has_worked
                if runs and now - each.since >= NODE_SETTLES_SECONDS:
                    each.has_worked = True
                    useful.append(each)
                continue
            is_idle = there.get(each.worker)
            if is_idle is None or each.phase is EnvironmentPhase.STOPPING:
                continue
            each.draining = each.worker in draining
            if not each.draining:
                each.makes_room_for = ""  # somebody has resumed its worker
            if each.phase is EnvironmentPhase.STARTING:
                each.phase, each.since = EnvironmentPhase.READY, now
            if not is_idle:
                if not each.has_worked:
                    each.has_worked = True
                    useful.append(each)
                each.idle_since = None
            elif each.idle_since is None:
                each.idle_since = now
        return useful
