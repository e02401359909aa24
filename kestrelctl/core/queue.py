"""Jobs with tasks that could run, in the order in which they get workers."""

from __future__ import annotations

from bisect import bisect_left, insort

from kestrelctl.core.job import Job
from kestrelctl.core.matching import Shape


class JobQueue:
    """Runnable jobs, grouped by shape; in a group by priority, then first come.

    A group's head is found at once, however many jobs wait: workers are held against shapes, never
    against jobs.
    """

    def __init__(self) -> None:
        self._groups: dict[Shape, list[tuple[tuple[int, int], Job]]] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def shapes(self) -> list[Shape]:
        """The shapes for which something waits."""
        return list(self._groups)

    def head(self, shape: Shape) -> Job | None:
        """The first job of that shape."""
        group = self._groups.get(shape)
        return group[0][1] if group else None

    def update(self, job: Job) -> bool:
        """Puts a job in or takes it out, as its state asks; True if it came in just now."""
        wanted = job.takeable() > 0
        if wanted == job.queued:
            return False
        job.queued = wanted
        if wanted:
            insort(self._groups.setdefault(job.shape, []), (job.key, job))
            return True
        group = self._groups[job.shape]
        del group[bisect_left(group, job.key, key=lambda entry: entry[0])]
        if not group:
            del self._groups[job.shape]
        return False

    def jobs(self) -> list[Job]:
        """Every runnable job (for checks)."""
        return [job for group in self._groups.values() for _, job in group]
