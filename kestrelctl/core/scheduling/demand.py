"""What waits: jobs with tasks that may be handed out, in the order in which they get workers."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence

from kestrelctl.core.jobs.gates import takeable
from kestrelctl.core.jobs.job import Job, Order
from kestrelctl.core.model.matching_ads import JOB_ATTRIBUTES, job_facts
from kestrelctl.core.model.shape import Shape, ShapeKey, shape_key
from kestrelctl.core.model.significance import Facts, Significance
from kestrelctl.core.model.spec import JobSpec

#: How many shapes may be known that nobody has any more, at the least.
SPARE_SHAPES = 64


def by_priority(job: Job) -> Order:
    """Higher priority first, then first come; whose tasks keep failing lets others by."""
    return (-job.spec.priority, job.line, job.id)


class Demand:
    """Jobs with takeable tasks, grouped by shape; in a group in order.

    A group's head is found at once, however many jobs wait: workers are held against shapes, never
    against jobs. The order of a job may change with time: `reorder` moves it.

    Args:
        order: where a job comes now.

    Attributes:
        significance: of the attributes of jobs.
    """

    def __init__(self, order: Callable[[Job], Order] = by_priority) -> None:
        self.order = order
        self._groups: dict[Shape, list[tuple[Order, Job]]] = {}
        self._shapes: dict[ShapeKey, Shape] = {}
        self._shapes_at_most = 2 * SPARE_SHAPES
        self.significance = Significance(JOB_ATTRIBUTES)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def groups(self) -> Iterable[tuple[Shape, Sequence[tuple[Order, Job]]]]:
        """Each shape for which something waits, with its jobs in order."""
        return self._groups.items()

    def jobs(self) -> list[Job]:
        """Every job that is in."""
        return [job for group in self._groups.values() for _, job in group]

    def update(self, job: Job) -> bool:
        """Puts a job in, takes it out, or moves it, as it now is.

        Returns:
            Whether another job is the first of its shape now, and that is not because the one
            before went out: then workers that had no room for that may have room for this.
        """
        if takeable(job) <= 0:
            if job.place is not None:
                self._remove(job)
            return False
        if job.place is None:
            return self._insert(job)
        if self.order(job.whole) == job.place:
            return False
        first = self._groups[job.shape][0][1]
        self._remove(job)
        self._insert(job)
        return self._groups[job.shape][0][1] is not first

    def reorder(self) -> list[Shape]:
        """Moves every job to where it comes now. To be called when the order has changed.

        Returns:
            Shapes whose first job is another one now: workers that had no room for the earlier one
            may have room for it (`Supply.wake_for`).
        """
        firsts = {shape: group[0][1] for shape, group in self._groups.items()}
        for job in self.jobs():
            if self.order(job.whole) != job.place:
                self._remove(job)
                self._insert(job)
        return [shape for shape, group in self._groups.items() if group[0][1] is not firsts[shape]]

    def _insert(self, job: Job) -> bool:
        """Puts a job in; returns whether it is the first of its shape."""
        job.place = self.order(job.whole)
        group = self._groups.setdefault(job.shape, [])
        insort(group, (job.place, job))
        return group[0][1] is job

    def _remove(self, job: Job) -> None:
        group = self._groups[job.shape]
        del group[bisect_left(group, job.place, key=lambda entry: entry[0])]
        job.place = None
        if not group:
            del self._groups[job.shape]

    # -- shapes ------------------------------------------------------------------------------------

    def shape_of(self, spec: JobSpec, owner: str) -> Shape:
        """The one shape object for jobs that ask like this one."""
        key = shape_key(spec, self.facts_of(spec, owner))
        shape = self._shapes.get(key)
        if shape is None:
            request, requires, requirements, rank, facts, seconds = key
            shape = Shape(dict(request), requires, spec.request, requirements, rank, facts, seconds)
            self._shapes[key] = shape
        return shape

    def facts_of(self, spec: JobSpec, owner: str) -> Facts:
        """What of a job's ad expressions ask, beside what it asks for itself."""
        return self.significance.of(job_facts(spec, owner)) if self.significance else ()

    def reshape(self, jobs: Iterable[Job]) -> None:
        """Gives jobs the shapes that they have now that other attributes matter."""
        for line in (line for job in jobs for line in job.lines()):
            shape = self.shape_of(line.asks, line.owner)
            if shape is line.shape:
                continue
            queued = line.place is not None
            if queued:
                self._remove(line)
            line.shape = shape
            if queued:
                self._insert(line)

    def shapes(self) -> list[Shape]:
        """Every known shape."""
        return list(self._shapes.values())

    def too_many_shapes(self) -> bool:
        """Whether it is time to look for shapes that nobody has any more."""
        return len(self._shapes) > self._shapes_at_most

    def forget_shapes(self, used: set[Shape]) -> None:
        """Drops all shapes but these."""
        self._shapes = {key: shape for key, shape in self._shapes.items() if shape in used}
        self._shapes_at_most = 2 * max(len(self._shapes), SPARE_SHAPES)
