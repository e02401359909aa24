"""Resolves the job that `last` means in an option of a command that makes another job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kestrelctl.cli.command import Invocation
from kestrelctl.errors import UsageError
from kestrelctl.grammar.id_ranges import LAST

if TYPE_CHECKING:
    from kestrelctl.access.connection import Connection


class LastJob:
    """The latest job of the caller of the command, asked for once and before anything is made."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._job_id: int | None = None

    def refuse_key(self, key: str | None) -> None:
        """Raises UsageError if there is a key, and an option meant the latest job.

        The latest job would be another one when the submission is repeated.
        """
        if key is not None and self._job_id is not None:
            raise UsageError(
                "`last` and --key do not go together",
                cause="sent again with this key, the job would wait for itself",
                hint=f"name the job by its id, which is {self._job_id} now",
            )

    def __call__(self) -> int:
        """Returns the id of the job.

        Raises:
            NotFound: the caller has submitted none.
            KestrelError: the pool cannot be reached.
        """
        if self._job_id is None:
            self._invocation.talk(self._ask)
        assert self._job_id is not None
        return self._job_id

    async def _ask(self, connection: Connection) -> None:
        from kestrelctl.access.connection import ask
        from kestrelctl.protocol.job_answers import Jobs
        from kestrelctl.protocol.job_requests import ListJobs

        answer = await ask(connection, ListJobs(jobs=LAST), Jobs)
        self._job_id = answer.jobs[-1].job_id
