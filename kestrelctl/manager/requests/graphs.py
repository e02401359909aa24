"""Serves what users ask about jobs that depend on jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import msgspec

from kestrelctl.core import events as ev
from kestrelctl.core.model.files.parent_files import not_waited_for
from kestrelctl.core.model.job.after import GraphHead, problem_with_parents
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.core.model.objection import objection_to
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.model.validate import problem_with_job, problem_with_waiting_each
from kestrelctl.errors import UsageError
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.requests.descent import below
from kestrelctl.manager.requests.environments import no_environments, with_environment
from kestrelctl.manager.requests.parent_files import check_parent, check_parents
from kestrelctl.manager.requests.pending_answers import PendingAnswers
from kestrelctl.manager.requests.steady_reads import SteadyReads
from kestrelctl.manager.rights import Handlers
from kestrelctl.manager.selection import MAX_RECORDS, Selected, Selection
from kestrelctl.manager.service import Service
from kestrelctl.protocol import job_requests as rq
from kestrelctl.protocol.handout import problem_with_size
from kestrelctl.protocol.job_answers import GraphEdge, GraphJob, GraphNode, GraphSubmitted, JobGraph
from kestrelctl.store.edges import Edge

#: The most jobs that are submitted as one.
MOST_JOBS = 20_000
#: The most jobs that are drawn.
MOST_DRAWN = 1_000

#: The most characters of a command that stands for the name of a job that has none.
_MOST_OF_A_COMMAND = 60

_decoder = msgspec.json.Decoder(GraphJob)


class GraphRequests:
    """Submits jobs as one, and shows who waits for whom.

    Args:
        uploaded: the lines that a caller has sent ahead under a name.
    """

    def __init__(
        self,
        service: Service,
        selection: Selection,
        pending: PendingAnswers,
        uploaded: Callable[[Caller, str], list[str]],
    ) -> None:
        self._service = service
        self._selection = selection
        self._pending = pending
        self._uploaded = uploaded
        self._steady_reads = SteadyReads(service)
        #: Fills in what the tasks of a job run inside; set where there are classes of environments.
        self.inside: Callable[[TaskEnvironment], TaskEnvironment] = no_environments

    def handlers(self) -> Handlers:
        """The methods that serve each kind of request."""
        return {
            rq.SubmitJobs: self.submit,
            rq.DrawGraph: self.draw,
        }

    async def submit(self, caller: Caller, request: rq.SubmitJobs) -> None:
        lines = self._uploaded(caller, request.upload)
        jobs = _jobs(lines, self.inside)
        for job in jobs:
            await check_parents(self._service, job.spec)
        head = GraphHead(len(jobs), hashlib.sha256("\n".join(lines).encode()).hexdigest())
        specs = [job.spec for job in jobs]
        specs[0] = msgspec.structs.replace(specs[0], graph=head)
        known = await self._steady_reads.for_submission(caller.user, request.key, specs)
        answer = await self._pending.answer_to(
            lambda token: ev.SubmitGraph(
                at=self._service.now(),
                cause=caller.jid,
                request=token,
                owner=caller.user,
                specs=specs,
                after=[job.after for job in jobs],
                after_each=[job.after_each for job in jobs],
                key=request.key,
                earlier=known.earlier,
                ended=known.ended,
                paired=known.paired,
            )
        )
        caller.reply(
            GraphSubmitted(
                id=request.id,
                job_id=answer.job_id,
                jobs=len(jobs),
                tasks=answer.tasks,
                repeated=answer.repeated,
            )
        )

    async def draw(self, caller: Caller, request: rq.DrawGraph, selected: Selected) -> None:
        records = await self._selection.records(selected, request.jobs)
        store = self._service.store
        found = {record.job_id: record for record in records}
        more = False
        level = list(found)
        while level and not more:
            parents = {
                each
                for edge in await self._edges_of(level)
                for each in range(edge.first, edge.last + 1)
                if each not in found
            }
            more = len(found) + len(parents) > MOST_DRAWN
            level = [] if more else await self._take(found, parents)
        async for child in below(store, list(found)):
            if len(found) >= MOST_DRAWN:
                more = True
                break
            await self._take(found, [child])
        ids = sorted(found)
        edges = [GraphEdge(*edge) for edge in await self._edges_of(ids)]
        nodes = [self._node(found[job_id]) for job_id in ids]
        caller.reply(JobGraph(id=request.id, nodes=nodes, edges=edges, more=more))

    async def _edges_of(self, ids: list[int]) -> list[Edge]:
        return await self._service.store.ask(lambda read: read.edges(ids=ids))

    async def _take(self, found: dict[int, JobRecord], ids: Iterable[int]) -> list[int]:
        """Adds the records of jobs; returns the ids of those that are kept."""
        wanted = sorted(ids)
        records = await self._service.store.ask(
            lambda read: [
                record
                for start in range(0, len(wanted), MAX_RECORDS)
                for record in read.jobs(ids=wanted[start : start + MAX_RECORDS], limit=MAX_RECORDS)
            ]
        )
        found.update((record.job_id, record) for record in records)
        return [record.job_id for record in records]

    def _node(self, record: JobRecord) -> GraphNode:
        job = self._service.pool.job(record.job_id)
        state = record.state
        if job is not None:
            state = "cancelling" if job.cancelling else "active" if job.hold is None else "held"
            if job.parents is not None or (job.waiting_behind and not job.waiting + job.running):
                state = "waiting"
        counts = record.counts if job is None else job.counts
        return GraphNode(
            job_id=record.job_id,
            name=record.spec.name or " ".join(record.spec.program.argv)[:_MOST_OF_A_COMMAND],
            state=state,
            tasks=record.spec.count,
            ended=counts.total(),
        )


def _problem_with_pair(job: GraphJob) -> str | None:
    """Tells what is wrong with the job for whose tasks its tasks wait; None if all is well."""
    parent = job.after_each
    if parent is None:
        return None
    if parent < 0 or job.spec.after_each:
        return "its tasks wait for those of one job"
    if any(each.first <= parent <= each.last for each in job.after):
        return f"it waits for all of job {parent + 1} of them, so not for each task of it as well"
    return problem_with_waiting_each(job.spec)


def _jobs(lines: list[str], inside: Callable[[TaskEnvironment], TaskEnvironment]) -> list[GraphJob]:
    """Reads the jobs that lines describe, with what the pool says of their environments.

    Raises:
        NotFound: there is no such environment.
        UsageError: the pool does not take them.
    """
    if not 1 <= len(lines) <= MOST_JOBS:
        raise UsageError(
            f"{len(lines):,} jobs cannot be submitted as one",
            cause=f"{MOST_JOBS:,} is the most",
            hint="put tasks that differ by a number or a line into one job, as an array",
        )
    jobs = []
    for place, line in enumerate(lines):
        try:
            job = _decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeEncodeError) as error:
            raise UsageError("the jobs cannot be accepted", cause=str(error)[:200]) from None
        # What is checked is what workers will be sent.
        job = msgspec.structs.replace(job, spec=with_environment(job.spec, inside))
        problem = (
            problem_with_job(job.spec)
            or problem_with_size(job.spec)
            or problem_with_parents(job.after, least=0)
        )
        if not problem:
            placed = [each for each in job.spec.program.parent_files if each.placed]
            early = not_waited_for(placed, job.after, job.after_each)
            if early is not None:
                problem = f"files of job {early + 1} of them are wanted, and it is not waited for"
        named = [each.last for each in job.after]
        if job.after_each is not None:
            named.append(job.after_each)
        if not problem and named and max(named) >= place:
            problem = f"it waits for job {max(named) + 1} of them, which comes no earlier"
        problem = problem or _problem_with_pair(job)
        hint = None
        if not problem and (objection := objection_to(job.spec)) is not None:
            problem, hint = objection
        if problem:
            which = f"job {place + 1} of {len(lines):,}"
            name = f" ({job.spec.name[:40]})" if job.spec.name else ""
            raise UsageError(f"{which}{name} cannot be accepted", cause=problem, hint=hint)
        jobs.append(job)
        for each in job.spec.program.parent_files:
            if each.placed:
                which = f"job {each.job_id + 1} of {len(lines):,}"
                check_parent(jobs[each.job_id].spec, which)
    return jobs
