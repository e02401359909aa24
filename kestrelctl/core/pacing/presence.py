"""Who is told how the pool and its jobs are, and when: presence, without storms of it.

A pool may end thousands of jobs in a second, and each could be told to thousands of people. So
changes are not announced as they happen. Now and then the board looks how what is watched is then,
and tells each subscriber what differs from what he was told last: whatever happens in between, and
however often, costs one look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

#: How often the board looks, and so the shortest time between two tellings of one contact.
LOOK_SECONDS = 3.0
#: So many are told at one look; who was told longest ago goes first.
MOST_TOLD = 500
#: What one account may watch, and all together; whoever is above is not told of changes.
MOST_OF_ACCOUNT = 100
MOST_TOGETHER = 10_000
#: Sessions of an account that are remembered to watch one contact.
MOST_SESSIONS = 20


@dataclass(frozen=True)
class Shown:
    """How somebody is: RFC 6121, 4.7.2.

    Attributes:
        show: `chat`, `away`, `xa`, `dnd`, or nothing for available.
        status: a line for people.
        gone: whether that is not there at all: unavailable.
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
    """Those that are online and subscribed, by contact. It knows nobody who is away."""

    def __init__(self) -> None:
        self._watches: dict[str, dict[str, _Watch]] = {}
        self._of_account: Counter[str] = Counter()
        self._together = 0

    def __len__(self) -> int:
        return self._together

    def watch(self, contact: str, jid: str, shown: Shown, now: float) -> bool:
        """A session watches a contact from now on, and has just been told how that is.

        Args:
            jid: without a resource if it is not known which sessions there are.

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
        """A session does not watch any more; without a resource: none of the account does."""
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
        """Forgets everybody: who is still there will be heard of."""
        self._watches.clear()
        self._of_account.clear()
        self._together = 0

    def look(self, now: float, how: Callable[[str, Shown | None], Shown]) -> list[Telling]:
        """What is to be told now.

        Args:
            how: how a contact is; it is given what one of its subscribers was told last.
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
    """How a job is, in the words of the first Kestrel: `away` queued, `chat` running, `dnd`
    cancelled, `xa` finished.

    Args:
        state: of a `JobRecord`, or `cancelling`.
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
    """How a pool is.

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
