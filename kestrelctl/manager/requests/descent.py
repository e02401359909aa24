"""Follows through the store which job waits for which, up and down."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from kestrelctl.core.jobs.job import PARENT
from kestrelctl.core.jobs.parents import first_in_vain
from kestrelctl.core.model.index_ranges import IndexRanges
from kestrelctl.core.model.job.after import EACH, After, IfParentFails, WantedEnd, ids_of
from kestrelctl.core.model.records import EndedTasks, JobRecord, ended_tasks
from kestrelctl.store.edges import Edge
from kestrelctl.store.port import CoreReads, CoreStore

#: The edges that are read at once; others are served in between.
_EDGES_AT_ONCE = 5_000


def ended_parents(store: CoreReads, owner: str | None, after: Iterable[After]) -> dict[int, str]:
    """Returns the final states of the jobs that are the owner's and have ended, among these.

    Args:
        owner: None for anybody's.
    """
    ids = sorted(set(ids_of(tuple(after))))
    if not ids:
        return {}
    done = store.job_ids(ids=ids, owner=owner, states=("done",))
    others = store.job_ids(ids=ids, owner=owner, states=("failed", "cancelled"))
    return dict.fromkeys(done, "done") | dict.fromkeys(others, "failed")


def stopped_in_vain_no_more(
    store: CoreReads, ids: Sequence[int], active: Callable[[int], object | None]
) -> list[JobRecord]:
    """Finds jobs that a parent stopped, and of which no parent that has failed is left.

    Args:
        ids: in rising order; those that come back may be parents of others.
        active: what the pool knows of an active job.
    """
    after: dict[int, list[After]] = {}
    for edge in store.edges(ids=ids):
        if edge.ending != EACH:
            found = After(edge.first, edge.last, WantedEnd(edge.ending))
            after.setdefault(edge.child, []).append(found)
    ended = ended_parents(store, None, (each for found in after.values() for each in found))
    back: set[int] = set()

    def outcome_of(parent: int) -> str | None:
        return None if parent in back or active(parent) is not None else ended.get(parent)

    stopped = []
    for record in store.jobs(ids=ids, limit=len(ids)):
        in_vain = first_in_vain(after.get(record.job_id, ()), outcome_of)
        if record.stopped_by == PARENT and in_vain is None:
            stopped.append(record)
            back.add(record.job_id)
    return stopped


def ended_pairs(store: CoreReads, owner: str | None, ids: Iterable[int]) -> dict[int, EndedTasks]:
    """Finds the jobs that are the owner's and have ended, with their tasks that are not done.

    Args:
        ids: 0 is none.
        owner: None for anybody's.
    """
    wanted = sorted(set(ids) - {0})
    if not wanted:
        return {}
    ended = ("done", "failed", "cancelled")
    found = store.jobs(ids=wanted, owner=owner, states=ended, limit=len(wanted))
    return {each.job_id: ended_tasks(each, store.ended_badly(each.job_id)) for each in found}


def in_vain_no_more(
    store: CoreReads, record: JobRecord, parent_bad: IndexRanges
) -> list[tuple[int, str]] | None:
    """Finds tasks of an ended job that wait again, because those they wait for were brought back.

    Args:
        parent_bad: the tasks of its `after_each` that have ended otherwise than done, still.

    Returns:
        The tasks with a row, with their states; None if none at all waits again.
    """
    spec = record.spec
    if record.cancelling or spec.if_parent_fails is not IfParentFails.CANCEL:
        return None
    rows = store.ended_badly(record.job_id) if record.counts.cancelled else []
    found = [each for each in rows if each[1] == "cancelled" and each[0] not in parent_bad]
    beyond = parent_bad.gaps(record.cursor, spec.count - 1)
    return found if found or beyond else None


async def below(store: CoreStore, jobs: Iterable[int]) -> AsyncIterator[int]:
    """Yields the jobs that wait for these, or for jobs that do, and so on, in the order of ids.

    A parent's id is lower than its child's, so that one walk finds them all.
    """
    reached = sorted(jobs)
    if not reached:
        return
    seen = set(reached)
    last = reached[0]
    while True:
        page = await store.ask(
            lambda read, last=last: read.edges(above=last, limit=_EDGES_AT_ONCE)  # type: ignore[misc]
        )
        whole = _whole_children(page)
        for edge in whole:
            if edge.child not in seen and _meets(reached, edge):
                insort(reached, edge.child)
                seen.add(edge.child)
                yield edge.child
        if len(page) < _EDGES_AT_ONCE:
            return
        last = whole[-1].child
        await asyncio.sleep(0)


def _whole_children(page: list[Edge]) -> list[Edge]:
    """Leaves out the last child of a full page, as more of it may follow."""
    if len(page) < _EDGES_AT_ONCE:
        return page
    return [edge for edge in page if edge.child != page[-1].child]


def _meets(ids: list[int], edge: Edge) -> bool:
    """Whether one of these ids, which rise, is in the range of an edge."""
    place = bisect_left(ids, edge.first)
    return place < len(ids) and ids[place] <= edge.last
