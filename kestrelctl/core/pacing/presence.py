"""Decides who is told how the pool and its jobs are, and when: presence, without storms of it.

A pool may end thousands of jobs in a second, and each could be told to thousands of people. So
changes are not announced as they happen. Now and then the board looks at everything that is
watched, and tells each subscriber what differs from what he was told last: whatever happens in
between, and however often, costs one look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

#: How often the board looks, and so the shortest time between two tellings of one contact.
LOOK_SECONDS = 3.0
#: The most that are told at one look; those who were told longest ago go first.
MOST_TOLD = 500
#: The most that one account may watch, and all together; those above are not told of changes.
MOST_OF_ACCOUNT = 100
MOST_TOGETHER = 10_000
#: The most sessions of an account that are remembered as watching one contact.
MOST_SESSIONS = 20


@dataclass(frozen=True)
class Shown:
    """The presence of somebody: RFC 6121, 4.7.2.

    Attributes:
        show: `chat`, `away`, `xa`, `dnd`, or nothing for available.
        status: a line for people.
        gone: whether it is not there at all: unavailable.
        final: whether it stays so, as far as can be told: there is no need to look again.
    """

    show: str = ""
    status: str = ""
    gone: bool = False
    final: bool = False


@dataclass
class _Watch:
    sessions: set[str] = field(default_factory=set)
    told: Shown | None = None
    told_at: float = 0.0


@dataclass(frozen=True)
class Telling:
    """An account is to be told how a contact is."""

    account: str
    contact: str
    shown: Shown


class PresenceTable:
    """The subscribers that are online, by contact. It knows nobody who is away."""

    def __init__(self) -> None:
        self._watches: dict[str, dict[str, _Watch]] = {}
        self._of_account: Counter[str] = Counter()
        self._together = 0

    def __len__(self) -> int:
        return self._together

    def watch(self, contact: str, jid: str, shown: Shown, now: float) -> bool:
        """Notes that a session watches a contact from now on, and has been told how that is.

        Args:
            jid: the session; without a resource if it is not known which sessions there are.

        Returns:
            False if there are too many already.
        """
        account, _, resource = jid.partition("/")
        watch = self._watches.get(contact, {}).get(account)
        if watch is None:
            if self._of_account[account] >= MOST_OF_ACCOUNT or self._together >= MOST_TOGETHER:
                self._tidy(account)
                return False
            watch = self._watches.setdefault(contact, {})[account] = _Watch()
            self._of_account[account] += 1
            self._together += 1
        if len(watch.sessions) < MOST_SESSIONS:
            watch.sessions.add(resource)
        if resource:
            watch.sessions.discard("")
        watch.told, watch.told_at = shown, now
        return True

    def leave(self, contact: str, jid: str) -> None:
        """Ends the watch of a session; without a resource, that of all sessions of the account."""
        account, _, resource = jid.partition("/")
        watch = self._watches.get(contact, {}).get(account)
        if watch is None:
            return
        watch.sessions.discard(resource)
        if watch.sessions and resource:
            return
        del self._watches[contact][account]
        if not self._watches[contact]:
            del self._watches[contact]
        self._of_account[account] -= 1
        self._together -= 1
        self._tidy(account)

    def clear(self) -> None:
        """Forgets everybody: those who are still there will be heard of."""
        self._watches.clear()
        self._of_account.clear()
        self._together = 0

    def look(self, now: float, how: Callable[[str, Shown | None], Shown]) -> list[Telling]:
        """Finds what is to be told now, and takes it for told.

        Args:
            how: tells how a contact is; it is given what one of its subscribers was told last.
        """
        changed: list[tuple[float, str, str, Shown]] = []
        for contact, watches in self._watches.items():
            shown = how(contact, next(iter(watches.values())).told)
            for account, watch in watches.items():
                if watch.told != shown:
                    changed.append((watch.told_at, account, contact, shown))
        changed.sort(key=lambda each: each[:3])
        found = []
        for _, account, contact, shown in changed[:MOST_TOLD]:
            watch = self._watches[contact][account]
            watch.told, watch.told_at = shown, now
            found.append(Telling(account, contact, shown))
        return found

    def _tidy(self, account: str) -> None:
        if not self._of_account[account]:
            del self._of_account[account]


def job_shown(
    state: str, tasks: int, *, waiting: int, running: int, done: int, bad: int, cancelled: int
) -> Shown:
    """The presence of a job, in the words of the first Kestrel: `away` queued, `chat` running,
    `dnd` cancelled, `xa` finished.

    Args:
        state: the state of a `JobRecord`, or `cancelling`.
        bad: tasks that failed or were lost.
    """
    parts = [f"{done:,} of {tasks:,} done"]
    for number, word in ((bad, "failed"), (cancelled, "cancelled"), (running, "running")):
        if number:
            parts.append(f"{number:,} {word}")
    status = ", ".join(parts)
    if state in ("cancelling", "cancelled"):
        return Shown("dnd", status, final=state == "cancelled")
    if state != "active":
        return Shown("xa", status, final=True)
    return Shown("chat" if running or not waiting else "away", status)


def pool_shown(workers: int, busy: int, waiting: int, problem: str = "") -> Shown:
    """The presence of a pool.

    Args:
        workers: those that are online.
        waiting: tasks that no worker has.
        problem: why it cannot take work now; empty if it can.
    """
    if problem:
        return Shown("dnd", problem)
    tasks = f"{waiting:,} task{'s' if waiting != 1 else ''} waiting"
    if not workers:
        return Shown("away", f"no workers; {tasks}")
    return Shown("", f"{busy:,} of {workers:,} worker{'s' if workers != 1 else ''} busy; {tasks}")
