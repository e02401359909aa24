"""Who wants to be told when a job ends."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

KEPT_SECONDS = 60.0
#: Of one account, for one job.
MOST_SESSIONS = 20


class _HasJid(Protocol):
    @property
    def jid(self) -> str: ...


T = TypeVar("T", bound=_HasJid)


class Watchers(Generic[T]):
    """Watchers by job; one that does not ask again for a minute is dropped."""

    def __init__(self) -> None:
        self._by_job: dict[int, dict[str, tuple[float, T]]] = {}

    def add(self, job_id: int, watcher: T, now: float) -> None:
        """Watches a job, or goes on doing so."""
        known = self._by_job.get(job_id, {})
        live = {jid: entry for jid, entry in known.items() if entry[0] >= now}
        live.pop(watcher.jid, None)
        account = watcher.jid.partition("/")[0]
        own = [jid for jid in live if jid.partition("/")[0] == account]
        if len(own) >= MOST_SESSIONS:
            del live[own[0]]  # the one that asked longest ago
        live[watcher.jid] = (now + KEPT_SECONDS, watcher)
        self._by_job[job_id] = live

    def pop(self, job_id: int, now: float) -> list[T]:
        """Those to be told that a job has ended."""
        found = self._by_job.pop(job_id, {})
        return [watcher for until, watcher in found.values() if until >= now]
