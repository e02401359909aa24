"""The dependencies between jobs: which jobs wait for which others.

Jobs that wait for the same share one count: a hundred jobs behind a hundred others are a hundred
names, not ten thousand edges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.jobs.parents import Parents
from kestrelctl.core.model.job.after import After, ids_of

#: Parents that all waiting jobs of one user may name, those with the same parents counted once.
MOST_NAMED = 200_000


class Dependencies:
    """The waits of jobs for other jobs.

    Attributes:
        named: how many parents are named by the jobs of each owner that wait.
    """

    def __init__(self) -> None:
        self.named: Counter[str] = Counter()
        self._same: dict[tuple[After, ...], Parents] = {}
        self._of: dict[int, dict[Parents, None]] = {}
        self._children: dict[Parents, dict[int, Job]] = {}

    def of(self, parent: int) -> list[Parents]:
        """Every wait in which a job is a parent, whether that has ended or not."""
        return list(self._of.get(parent, ()))

    def __contains__(self, parent: int) -> bool:
        """Whether somebody waits who named this job."""
        return parent in self._of

    def all(self) -> list[Parents]:
        """Every wait."""
        return list(self._same.values())

    def children(self, parents: Parents) -> list[Job]:
        """The jobs that wait for these."""
        return list(self._children.get(parents, {}).values())

    def bind(self, job: Job, outcome_of: Callable[[int], str | None]) -> Parents:
        """Makes a job wait for the parents that its spec names.

        Args:
            outcome_of: the final state of a parent; None if it has none.
        """
        after = job.spec.after
        found = self._same.get(after)
        if found is None:
            found = self._same[after] = Parents(job.owner, after)
            self._children[found] = {}
            for parent in ids_of(after):
                found.left.add(parent)
                self._of.setdefault(parent, {})[found] = None
                self.named[job.owner] += 1
                outcome = outcome_of(parent)
                if outcome is not None:
                    found.settle(parent, outcome)
        self._children[found][job.id] = job
        job.parents = found
        return found

    def release(self, job: Job) -> None:
        """Ends the wait of a job for its parents."""
        found, job.parents = job.parents, None
        if found is None:
            return
        children = self._children[found]
        del children[job.id]
        if children:
            return
        del self._same[found.after], self._children[found]
        for parent in ids_of(found.after):
            waits = self._of[parent]
            del waits[found]
            if not waits:
                del self._of[parent]
            self.named[found.owner] -= 1
        if not self.named[found.owner]:
            del self.named[found.owner]
