"""Waits for jobs to end: for `job wait` and `submit --wait`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.job.view import stop_words, why_ended
from kestrelctl.cli.show.progress import Look, shown
from kestrelctl.cli.show.screen import Screen
from kestrelctl.core.model.job.hold import Hold
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import (
    Busy,
    KestrelError,
    NotFound,
    TasksFailed,
    TimedOut,
    Unreachable,
    UsageError,
)
from kestrelctl.grammar.id_ranges import id_text
from kestrelctl.grammar.quantities import duration, short_address
from kestrelctl.grammar.why_waiting import conclusion
from kestrelctl.protocol.job_answers import Ended, JobExplanation, Jobs, JobView, Tasks, TaskView
from kestrelctl.protocol.job_requests import ExplainJob, ListTasks, Watch

#: The time between two questions to the pool; the end itself is pushed, and known at once.
INTERVAL_SECONDS = 2.0
PROGRESS_INTERVAL_SECONDS = 0.5
#: The longest silence of a pool (while its manager restarts, say) before waiting is given up.
PATIENCE_SECONDS = 120.0
#: The most jobs that one request can ask about.
MOST_AT_ONCE = 500
#: The time between two checks whether jobs of which nothing runs could run at all, and the most
#: jobs that one checks.
LOOK_SECONDS = 10.0
_MOST_EXPLAINED = 5
_ASK_SECONDS = 10.0
_SHOWN_FAILURES = 3
_ACTIVE = ("active", "cancelling")


async def until_ended(
    connection: Connection,
    jobs: str,
    screen: Screen,
    *,
    look: Look = Look.NONE,
    any_one: bool = False,
    pieces: Sequence[str] = (),
    on_ended: Callable[[JobView], None] = lambda _view: None,
) -> list[JobView]:
    """Waits until all selected jobs have ended.

    Args:
        jobs: a selection; its jobs are settled at the start.
        look: where to show how far they are.
        any_one: whether to wait only until the first of them has ended.
        pieces: the same jobs as several selections, if they are more than one request can name.
        on_ended: is told of each of them once, as soon as it has ended.

    If no task of a job can ever run, it says so, and why; waiting goes on, because a worker may
    join.

    Returns:
        The jobs as they ended, in the order of their ids; with `any_one` the one that ended first.

    Raises:
        KestrelError: the selection was refused.
        NotFound: `any_one` is set, and there is no job.
        UsageError: all of these jobs are services, which end only by a cancel.
        Unreachable: the pool did not answer for two minutes.
    """
    views: dict[int, JobView] = {}
    wanted: list[int] = []
    changed = asyncio.Event()
    listener = asyncio.create_task(_listen(connection, views, changed))
    try:
        found: list[JobView] = []
        for each in pieces or (jobs,):
            found += (await ask(connection, Watch(jobs=each), Jobs)).jobs
        with shown(screen, look) as meter:
            interval = PROGRESS_INTERVAL_SECONDS if meter.lively else INTERVAL_SECONDS
            _update(views, found)
            wanted += sorted(view.job_id for view in found if not _is_endless(view))
            endless = [str(view.job_id) for view in found if _is_endless(view)]
            if endless and not wanted:
                raise UsageError(
                    f"job {endless[0]} is a service, which does not end by itself",
                    hint=f"kestrelctl job cancel {endless[0]}",
                )
            if endless:
                screen.say(f"not waited for: {', '.join(endless)}, which are services")
            if any_one and not wanted:
                raise NotFound("there is no job to wait for")
            holds: dict[int, Hold | None] = {}
            hopes = _Hopes(connection, screen)
            known_ended: set[int] = set()
            turn = 0
            while True:
                _tell_holds([views[job_id] for job_id in wanted], holds, screen)
                meter.show([views[job_id] for job_id in wanted])
                active = [job_id for job_id in wanted if views[job_id].state in _ACTIVE]
                ended = [views[job_id] for job_id in wanted if job_id not in active]
                if any_one and ended:
                    ended = [min(ended, key=lambda view: (view.ended_at or 0.0, view.job_id))]
                for view in ended:
                    if view.job_id not in known_ended:
                        known_ended.add(view.job_id)
                        on_ended(view)
                if any_one and ended:
                    return ended
                if not active:
                    return [views[job_id] for job_id in wanted]
                changed.clear()
                await hopes.look([views[job_id] for job_id in active])
                if changed.is_set():
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(interval):
                        await changed.wait()
                    continue
                _update(views, await _ask_patiently(connection, _part(active, turn), screen))
                turn += 1
    except asyncio.CancelledError:
        # by number: `last` is another one after the next submission, and `all` are more than these
        going_on = [job_id for job_id in wanted if views[job_id].state in _ACTIVE]
        named = id_text(going_on) or jobs
        screen.say(f"the pool goes on with it; to stop it: kestrelctl job cancel {named}")
        raise
    finally:
        listener.cancel()


def _part(active: list[int], turn: int) -> list[int]:
    """Returns as many jobs as one request can name, in each turn the next ones of all."""
    parts = -(-len(active) // MOST_AT_ONCE)
    start = turn % parts * MOST_AT_ONCE
    return active[start : start + MOST_AT_ONCE]


def pieces_of(first: int, last: int) -> list[str]:
    """Splits jobs with consecutive ids into selections that requests can name."""
    starts = range(first, last + 1, MOST_AT_ONCE)
    return [f"{start}-{min(last, start + MOST_AT_ONCE - 1)}" for start in starts]


def sentences(views: Sequence[JobView]) -> list[str]:
    """Says how jobs ended: a line each; if many, one for all and one for each that was not done."""
    if len(views) <= MOST_AT_ONCE:
        return [sentence(view) for view in views]
    bad = [view for view in views if view.state != "done"]
    total = f"{plural(len(views), 'job')} ended: {len(views) - len(bad):,} done"
    more = [f"and {len(bad) - MOST_AT_ONCE:,} more"] if len(bad) > MOST_AT_ONCE else []
    return [total, *map(sentence, bad[:MOST_AT_ONCE]), *more]


def _tell_holds(views: Sequence[JobView], told: dict[int, Hold | None], screen: Screen) -> None:
    """Warns of each job that is on hold, once for each hold."""
    for view in views:
        if view.hold is not None and told.get(view.job_id) != view.hold:
            why = f": {view.hold.reason}" if view.hold.reason else ""
            release = f"kestrelctl job release {view.job_id}; " if view.whole else ""
            screen.warn(
                f"job {view.job_id} is on hold by {view.hold.by}{why}",
                hint=f"{release}waiting goes on",
            )
        told[view.job_id] = view.hold


class _Hopes:
    """Warns of jobs that no worker could ever run: waiting may never end."""

    def __init__(self, connection: Connection, screen: Screen) -> None:
        self._connection = connection
        self._screen = screen
        self._told: dict[int, str] = {}
        self._next_at = 0.0

    async def look(self, views: Sequence[JobView]) -> None:
        """Asks about waiting jobs now and then; warns of each once, unless the reason changes."""
        now = asyncio.get_running_loop().time()
        if self._screen.quiet or now < self._next_at:
            return
        self._next_at = now + LOOK_SECONDS
        stuck = [v for v in views if v.waiting and not v.running and v.hold is None and v.whole]
        stuck.sort(key=lambda view: view.job_id in self._told)
        for view in stuck[:_MOST_EXPLAINED]:
            request = ExplainJob(job=str(view.job_id))
            with contextlib.suppress(KestrelError):  # the job is safe; this is only advice
                self._tell(await ask(self._connection, request, JobExplanation))

    def _tell(self, found: JobExplanation) -> None:
        job_id = found.job.job_id
        why, hint = conclusion(found) if found.is_hopeless else ("", None)
        if why and why != self._told.get(job_id):
            goes_on = "waiting goes on, as such a worker may join"
            hint = f"{hint}; {goes_on}" if hint else goes_on
            self._screen.warn(f"job {job_id} waits: {why}", hint=hint)
        self._told[job_id] = why


def _is_endless(view: JobView) -> bool:
    return view.spec.service and view.state == "active" and view.deadline_at is None


async def check(connection: Connection, views: Sequence[JobView]) -> None:
    """Passes if every task of every job was done.

    Raises:
        TasksFailed: says how many were not, and the reasons of the first.
    """
    bad = [view for view in views if view.state != "done"]
    if not bad:
        return
    view = bad[0]
    states = [state for state in _BAD if getattr(view, state.value)]
    counts = ", ".join(f"{getattr(view, state.value):,} {state.value}" for state in states)
    failed = sum(getattr(view, state.value) for state in _BAD)
    message = f"job {view.job_id}: {failed:,} of {plural(view.tasks, 'task')} not done ({counts})"
    if view.stopped_by:
        message += f"; {stop_words(view)}"
    if len(bad) > 1:
        message += f"; {plural(len(bad) - 1, 'other job')} not done either"
    request = ListTasks(job=str(view.job_id), states=states, limit=_SHOWN_FAILURES)
    try:
        tasks = (await ask(connection, request, Tasks)).tasks
    except KestrelError:  # somebody else's job, or a pool that is away: how it ended is known
        tasks = []
    reasons = "; ".join(filter(None, map(_failure, tasks)))
    state = f" --state {states[0].value}" if states else ""
    raise TasksFailed(
        message, cause=reasons or None, hint=f"kestrelctl job tasks {view.job_id}{state}"
    )


_BAD = (TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED)


def _failure(task: TaskView) -> str:
    why = why_ended(task.reason, task.exit_code, task.signal)
    worker = f" on {short_address(task.worker)}" if task.worker else ""
    return f"task {task.task_id}{worker}: {why}" if why else ""


def sentence(view: JobView) -> str:
    """Says how a job ended: `job 7 done: 1,000 tasks in 12 s`."""
    took = (view.ended_at or view.submitted_at) - view.submitted_at
    return f"job {view.job_id} {view.state}: {plural(view.tasks, 'task')} in {duration(took)}"


async def _listen(
    connection: Connection, views: dict[int, JobView], changed: asyncio.Event
) -> None:
    ended: Ended
    async for ended in connection.pushed():
        views[ended.job.job_id] = ended.job
        changed.set()


def _update(views: dict[int, JobView], fresh: Sequence[JobView]) -> None:
    """Takes over what is known of jobs, but never forgets that one has ended."""
    for view in fresh:
        if view.job_id not in views or views[view.job_id].state in _ACTIVE:
            views[view.job_id] = view


async def _ask_patiently(
    connection: Connection, active: Sequence[int], screen: Screen
) -> list[JobView]:
    """Asks how far jobs are; a pool that is away, or has no time, is given some."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + PATIENCE_SECONDS
    request = Watch(jobs=",".join(map(str, active)))
    while True:
        try:
            return (await ask(connection, request, Jobs, _ASK_SECONDS)).jobs
        except (Busy, TimedOut, Unreachable) as error:
            if clock() >= deadline:
                raise
            screen.detail(f"no answer ({error.message}); asking again")
            await asyncio.sleep(INTERVAL_SECONDS)
