"""Checks whether a user may make a request: here alone, before anything serves it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from kestrelctl.core.model.records import JobRecord
from kestrelctl.errors import NotAllowed
from kestrelctl.manager.caller import THE_POOL, Caller
from kestrelctl.manager.selection import Selected, Selection
from kestrelctl.protocol.request import AdminRequest, JobRequest, JobsRequest, Request, UserRequest

#: The arguments of a handler beside the request: of a `JobRequest` its job, of a `JobsRequest`
#: those of its jobs that it may be served for. A handler cannot forget whose they are.
Granted: TypeAlias = tuple[()] | tuple[JobRecord] | tuple[Selected]


#: The methods for each type of request: called with the caller, the request, and what is granted.
Handlers: TypeAlias = Mapping[type, Callable[..., Awaitable[None]]]


class Rights:
    """Checks requests by their types (`protocol.request`)."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    async def check(self, caller: Caller, request: Request) -> Granted:
        """Returns what the request's handler is given beside it.

        Raises:
            NotAllowed: it is not the caller's to make, or selects jobs of others alone.
            KestrelError: it selects no job, or several where one is needed.
        """
        if isinstance(request, UserRequest):
            return ()
        if isinstance(request, AdminRequest):
            if not caller.owns(THE_POOL) and (objection := request.objection(caller.user)):
                raise NotAllowed(objection)
            return ()
        if isinstance(request, JobRequest):
            return (await self.job(caller, request),)
        assert isinstance(request, JobsRequest), "a request says whose it is"
        return (await self.jobs(caller, request),)

    async def job(self, caller: Caller, request: JobRequest) -> JobRecord:
        """The job that a request is about (see `check`)."""
        selected = await self._selection.jobs(caller, request.job)
        record = await self._selection.one(selected, request.job)
        may = caller.sees if request.shared else caller.owns
        if not may(record.owner):
            raise NotAllowed(f"job {record.job_id} belongs to {record.owner}")
        return record

    async def jobs(self, caller: Caller, request: JobsRequest) -> Selected:
        """The jobs that a request may be served for (see `check`); others that it selects are
        named in it.
        """
        may = caller.sees if request.shared else caller.owns
        selected = await self._selection.jobs(
            caller, request.jobs, request.among, only_own=not may(THE_POOL)
        )
        if not (request.in_part and selected.ids):
            await self._selection.refuse_others(selected, 0)
        return selected
