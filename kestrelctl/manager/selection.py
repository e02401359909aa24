"""The jobs that a user means: `last`, `all`, `3,5-9`, several of these, or `name:sweep*`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.model.index_ranges import as_ranges
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.model.wording import plural
from kestrelctl.core.pool import Pool
from kestrelctl.errors import KestrelError, NotAllowed, NotFound, UsageError
from kestrelctl.grammar.id_ranges import ALL, LAST
from kestrelctl.grammar.quantities import short_address
from kestrelctl.manager.caller import Caller
from kestrelctl.protocol.request import Among
from kestrelctl.store.port import CoreStore

MAX_SELECTED = 10_000
MAX_JOB_ID = 1 << 62
_MOST_DIGITS = 20
_MOST_SHOWN = 100
#: The most jobs of others whose owners are looked up, and the most ranges of them that are shown.
_MOST_OWNERS = 20
#: The most jobs in one answer: it must fit into a stanza.
MAX_RECORDS = 500
#: Names have 200; SQLite takes no glob of more than 50,000 bytes.
_MOST_GLOB_CHARACTERS = 1000
#: Where to look for a job that is not there.
_LISTED = "`kestrelctl job list` shows those that you may see"
#: The beginning of a selection by name.
BY_NAME = "name:"


class Ids(NamedTuple):
    """The ids in `3,5-9`: those that are named one by one, and those in ranges."""

    named: frozenset[int]
    ranged: frozenset[int]


class Selected(NamedTuple):
    """The jobs that a selection comes to.

    Attributes:
        ids: ascending.
        passed_over: how many jobs it meant that are not of the kind that was asked for.
        left: how many more it means than one request may.
        others: jobs that it names and that are not the user's, if it is about his own; ascending.
        missing: how many ids of its ranges are of no job.
    """

    ids: list[int]
    passed_over: int = 0
    left: int = 0
    others: tuple[int, ...] = ()
    missing: int = 0


class Selection:
    """Finds what requests name, among active and ended jobs."""

    def __init__(self, pool: Pool, store: CoreStore) -> None:
        self._pool = pool
        self._store = store

    async def jobs(
        self,
        caller: Caller,
        selector: str,
        among: Among = Among.ANY,
        *,
        only_own: bool = False,
    ) -> Selected:
        """The jobs that a selector names (see `select_jobs`)."""
        return await select_jobs(
            selector, caller.user, self._pool, self._store, among, only_own=only_own
        )

    async def refuse_others(self, selected: Selected, done: int) -> None:
        """Raises NotAllowed if a selection of a user's own jobs names jobs of others.

        Args:
            done: for how many jobs it was done.
        """
        others = selected.others
        if not others:
            return
        named = others[:_MOST_OWNERS]
        some = await self._store.ask(lambda read: read.jobs(ids=named, limit=_MOST_OWNERS))
        owners = {record.owner for record in some}
        one = len(owners) == 1 and len(others) <= _MOST_OWNERS
        whose = owners.pop() if one else "other users"
        ranges = as_ranges(others)
        shown = ",".join(f"{a}-{b}" if a < b else f"{a}" for a, b in ranges[:_MOST_OWNERS])
        more = ",…" if len(ranges) > _MOST_OWNERS else ""
        which = f"job {shown} belongs" if len(others) == 1 else f"jobs {shown}{more} belong"
        cause = f"it was done for {plural(done, 'other job')}" if done else None
        raise NotAllowed(f"{which} to {whose}", cause=cause)

    async def records(self, selected: Selected, selector: str) -> list[JobRecord]:
        """The records of the jobs that a selector has selected, each with the head of its spec.

        Raises:
            UsageError: they are too many for one answer.
        """
        ids = self.for_one_answer(selected, selector)
        return await self._store.ask(lambda read: read.jobs(ids=ids, limit=len(ids)))

    def for_one_answer(self, selected: Selected, selector: str) -> list[int]:
        """The jobs that a selector has selected.

        Raises:
            UsageError: they are too many for one answer.
        """
        ids = selected.ids
        if len(ids) > MAX_RECORDS:
            raise UsageError(
                f"{_shown(selector)} selects {len(ids):,} jobs; {MAX_RECORDS} is the most at once",
                hint="select a range, such as 1-500",
            )
        return ids

    async def one(self, selected: Selected, selector: str) -> JobRecord:
        """The record of the one job that a selector has selected.

        Raises:
            UsageError: it has selected several, or none.
        """
        ids = [*selected.ids, *selected.others]
        if len(ids) != 1:
            raise UsageError(f"{_shown(selector)} selects {len(ids)} jobs; this needs exactly one")
        return await self.record(ids[0])

    async def record(self, job_id: int) -> JobRecord:
        """A job's record, with the head of its spec.

        Raises:
            NotFound: there is no such job.
        """
        for record in await self._store.ask(lambda read: read.jobs(ids=[job_id], limit=1)):
            return record
        raise _no_jobs([job_id], self._pool)

    async def whole(self, job_id: int) -> JobRecord:
        """A job's record with its whole spec, which may be megabytes: for one job at a time.

        Raises:
            NotFound: there is no such job.
            KestrelError: it cannot be read.
        """
        record = await self._store.ask(lambda read: read.job(job_id))
        if record is None:
            raise _no_jobs([job_id], self._pool)
        return record

    def whole_at_once(self, job_id: int) -> JobRecord:
        """Reads as `whole` does, for a decision that must not wait: the event loop waits instead.

        Raises:
            NotFound: there is no such job.
            KestrelError: it cannot be read.
        """
        record = self._store.job(job_id)
        if record is None:
            raise _no_jobs([job_id], self._pool)
        return record

    def indexes(self, record: JobRecord, task_ids: list[int]) -> list[int]:
        """The indexes of tasks with these ids.

        Raises:
            NotFound: the job's array has no such task.
        """
        found = []
        for task_id, index in zip(task_ids, record.spec.indexes_of(task_ids), strict=True):
            if index is None:
                raise NotFound(f"job {record.job_id} has no task {task_id}")
            found.append(index)
        return found

    def workers(self, names: list[str]) -> list[str]:
        """The workers of these names (see `workers_named`).

        Raises:
            NotFound: a name fits no worker.
            UsageError: a name is empty.
        """
        found: set[str] = set()
        for name, matches in workers_named(names, self._pool.workers):
            if not matches:
                raise NotFound(
                    f"there is no worker {name}", hint="`kestrelctl worker list` shows all workers"
                )
            found.update(matches)
        return sorted(found)


def workers_named(names: Iterable[str], jids: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Finds for each name the workers of that address, account or machine; if there is none, those
    with it in their address.

    Raises:
        UsageError: a name is empty.
    """
    known = list(jids)
    called: dict[str, list[str]] = {}
    for jid in known:
        for name in dict.fromkeys(_names_of(jid)):
            called.setdefault(name, []).append(jid)
    for name in names:
        if not name:
            hint = "name the workers; `@` is a part of all their addresses"
            raise UsageError("an empty name would mean every worker", hint=hint)
        yield name, called.get(name) or [jid for jid in known if name in jid]


def _names_of(jid: str) -> tuple[str, ...]:
    """The names of a worker: its address, its machine, and as lists show it."""
    return (jid, *jid.partition("/")[::2], short_address(jid))


def must_be_readable(job_ids: Iterable[int], store: CoreStore) -> None:
    """Raises KestrelError for a job that is there, but damaged."""
    for job_id in job_ids:
        why = store.damaged.get(job_id)
        if why is not None:
            raise KestrelError(
                f"job {job_id} cannot be read in the manager's store, and was set aside",
                cause=why,
                hint="its operator can restore a backup: docs/operations.md",
            )


async def select_jobs(
    selector: str,
    owner: str,
    pool: Pool,
    store: CoreStore,
    among: Among = Among.ANY,
    *,
    only_own: bool = False,
) -> Selected:
    """Finds the jobs that a selector names, for a user.

    `last`, `all` and `name:GLOB` mean jobs of his own: `all` the active ones unless ended ones are
    asked for. An id by itself must be that of a job, whatever its state, and so is `last`; of a
    range and of `all`, only jobs that are there and of the kind that is asked for count.

    Args:
        only_own: whether jobs of others that it names are kept apart, whatever their state.

    Raises:
        UsageError: the selector has another form.
        NotFound: there is no such job.
    """
    text = selector.strip()
    if text.startswith(BY_NAME):
        name = text.removeprefix(BY_NAME)
        check_glob(name)
        ids = await store.ask(lambda read: read.job_ids(owner=owner, name=name))
        if not ids:
            raise NotFound(f"you have no job with the name {_shown(name)}")
        return _of(among, ids, pool)
    words = [word.strip() for word in text.split(",")]
    numbers = [word for word in words if word not in (LAST, ALL)]
    named, ranged = parse_ids(",".join(numbers)) if numbers else Ids(frozenset(), frozenset())
    one_by_one = sorted(named)
    records = await store.ask(lambda read: read.jobs(ids=one_by_one, limit=len(one_by_one)))
    known = {record.job_id for record in records}
    missing = sorted(named - known - {job.id for job in pool.jobs})
    must_be_readable(missing, store)
    if missing:
        raise _no_jobs(missing, pool, others=len(missing) < len(words))
    if LAST in words:
        named |= {await _last(owner, pool, store)}
    meant: set[int] = set()
    if ranged:
        meant.update(await store.ask(lambda read: read.job_ids(ids=sorted(ranged))))
    if not (named or meant or ALL in words):
        raise NotFound(f"there is no job in {_shown(text)}", hint=_LISTED)
    gaps = len(ranged) - len(meant)
    meant.difference_update(store.damaged)
    others: frozenset[int] = frozenset()
    if only_own:
        others = named.union(meant) - await _own(named.union(meant), owner, pool, store)
    if ALL in words:
        meant.update(await _all(owner, pool, store, among))
    several = sorted(meant - named - others)
    no_limit = ALL in words and among is Among.ANY
    found = Selected(several) if no_limit else _of(among, several, pool)
    return found._replace(
        ids=sorted((named - others).union(found.ids)),
        others=tuple(sorted(others)),
        missing=gaps,
    )


async def _own(ids: Set[int], owner: str, pool: Pool, store: CoreStore) -> set[int]:
    """Finds a user's own among some jobs."""
    active = {job_id for job_id in ids if (job := pool.job(job_id)) and job.owner == owner}
    stored = await store.ask(lambda read: read.job_ids(ids=sorted(ids), owner=owner))
    return active.union(stored)


async def _last(owner: str, pool: Pool, store: CoreStore) -> int:
    """The latest job of a user.

    Raises:
        NotFound: there is none.
    """
    own = [job.id for job in pool.jobs if job.owner == owner]
    latest = await store.ask(lambda read: read.jobs(owner=owner, limit=1))
    own.extend(record.job_id for record in latest)
    if not own:
        raise NotFound("you have submitted no job yet")
    return max(own)


async def _all(owner: str, pool: Pool, store: CoreStore, among: Among) -> list[int]:
    """The jobs that `all` means to a user: his ended ones if asked for, else his active ones."""
    if among is Among.ENDED:
        return await store.ask(lambda read: read.job_ids(owner=owner))
    return [job.id for job in pool.jobs if job.owner == owner]


def check_glob(name: str) -> None:
    """Raises UsageError for a glob that no store would look for."""
    if len(name) > _MOST_GLOB_CHARACTERS:
        raise UsageError(
            f"a glob of names has at most {_MOST_GLOB_CHARACTERS:,} characters, not {len(name):,}"
        )


def _of(among: Among, ids: list[int], pool: Pool) -> Selected:
    """Selects the jobs that are of a kind, the oldest, as many as one request may change."""
    if among is Among.ANY:
        return Selected(ids[:MAX_SELECTED], left=len(ids[MAX_SELECTED:]))
    active = among is Among.ACTIVE
    fitting = [job_id for job_id in ids if _is_kind(among, pool.job(job_id))]
    first, rest = fitting[:MAX_SELECTED], fitting[MAX_SELECTED:]
    if rest and active:
        # A job that is being cancelled stays active until its tasks have ended: it is not the next.
        fresh = [job.id for job in map(pool.job, fitting) if job is not None and not job.cancelling]
        first, rest = (fresh or first)[:MAX_SELECTED], fresh[MAX_SELECTED:]
    return Selected(first, len(ids) - len(fitting), left=len(rest))


def _is_kind(among: Among, job: Job | None) -> bool:
    """Whether a job is of a kind, which is None unless it is active."""
    if job is None or among in (Among.ACTIVE, Among.ENDED):
        return (job is None) is (among is Among.ENDED)
    return (job.hold is not None) is (among is Among.HELD) and not job.cancelling


def _no_jobs(missing: Sequence[int], pool: Pool, *, others: bool = False) -> NotFound:
    """Explains that jobs are not there, and that nothing was done with those that are."""
    untouched = "; nothing was done with the others" if others else ""
    if len(missing) > 1:
        shown = ", ".join(map(str, missing[:_MOST_OWNERS]))
        more = ", …" if len(missing) > _MOST_OWNERS else ""
        return NotFound(f"there are no jobs {shown}{more}", hint=_LISTED + untouched)
    [job_id] = missing
    if 0 < job_id < pool.next_job_id:
        return NotFound(
            f"there is no job {job_id} any more",
            cause="it has ended and was forgotten: by a user, or because it had been kept for long",
            hint="`kestrelctl job history` shows the ended jobs that are kept" + untouched,
        )
    return NotFound(f"there is no job {job_id}", hint=_LISTED + untouched)


def parse_ids(text: str) -> Ids:
    """Reads the numbers in `3,5-9`.

    Raises:
        UsageError: it is not of that form, or names too many.
    """
    named: set[int] = set()
    ranged: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(
                f"{_shown(text)} selects no jobs",
                hint="write `last`, `all`, `name:sweep*`, or ids like `3,5-9`",
            )
        if max(len(first), len(last)) > _MOST_DIGITS:  # int() would not take thousands
            raise NotFound(f"there is no job {_shown(part.strip())}")
        low, high = int(first), int(last or first)
        if high >= MAX_JOB_ID:
            raise NotFound(f"there is no job {high}")
        if high < low:
            raise UsageError(f"the range {part.strip()} runs backwards", hint=f"write {high}-{low}")
        if high - low + len(named) + len(ranged) >= MAX_SELECTED:
            raise UsageError(f"{_shown(text)} selects more than {MAX_SELECTED:,} jobs")
        (ranged if dash else named).update(range(low, high + 1))
    return Ids(frozenset(named), frozenset(ranged - named))


def _shown(text: str) -> str:
    """Cuts what a message repeats of a text that somebody wrote: the answer must not be as long."""
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…")
