"""Reads of the store by which the core is to decide, beside what it has in memory.

A job is in memory until its end is durable, and then in the store alone. While the store is asked,
a job may go from one to the other, and what was read would miss it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from kestrelctl.core.effects import JobEnded
from kestrelctl.core.model.job.after import After
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import EndedTasks, JobRecord
from kestrelctl.errors import KestrelError
from kestrelctl.manager.requests.descent import ended_pairs, ended_parents
from kestrelctl.manager.service import Service
from kestrelctl.store.port import Reads

T = TypeVar("T")


class ForSubmission(NamedTuple):
    """All in the store that a submission depends on.

    Attributes:
        earlier: the job that a submission with the same key has made.
        ended: the final states of the submitter's ended jobs that it waits for.
        paired: those for whose tasks tasks of it wait, if they have ended.
    """

    earlier: JobRecord | None
    ended: dict[int, str]
    paired: dict[int, EndedTasks]


class _Wanted(NamedTuple):
    """The key of a submission, and the jobs that it depends on."""

    owner: str
    key: str
    after: set[After]
    after_each: set[int]

    @classmethod
    def of(cls, owner: str, key: str, specs: Sequence[JobSpec]) -> _Wanted:
        after = {each for spec in specs for each in spec.after}
        return cls(owner, key, after, {spec.after_each for spec in specs} - {0})

    def known(self, read: Reads) -> ForSubmission | KestrelError:
        try:
            return ForSubmission(
                read.job_of_key(self.owner, self.key) if self.key else None,
                ended_parents(read, self.owner, self.after),
                ended_pairs(read, self.owner, self.after_each),
            )
        except KestrelError as error:  # another submission has nothing to do with it
            return error

    def concerns(self, ended: JobRecord) -> bool:
        same_key = bool(self.key) and (ended.owner, ended.key) == (self.owner, self.key)
        named = any(each.first <= ended.job_id <= each.last for each in self.after)
        return same_key or named or ended.job_id in self.after_each


class SteadyReads:
    """Asks the store again as long as jobs that matter end meanwhile."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._under_way: list[list[JobRecord]] = []
        service.listen(JobEnded, self._on_job_ended)

    async def ask(self, question: Callable[[Reads], T], concerns: Callable[[JobRecord], bool]) -> T:
        """Returns an answer that holds until the caller waits for something else.

        Args:
            question: as for `store.port.Store.ask`.
            concerns: whether the answer may depend on a job that has just ended.
        """
        while True:
            ended: list[JobRecord] = []
            self._under_way.append(ended)
            try:
                answer = await self._service.store.ask(question)
            finally:
                self._under_way = [each for each in self._under_way if each is not ended]
            if not any(map(concerns, ended)):
                return answer

    async def for_submission(self, owner: str, key: str, specs: Sequence[JobSpec]) -> ForSubmission:
        """Finds what jobs that are submitted as one depend on.

        Args:
            key: that of their submission; empty for none.

        Raises:
            KestrelError: one of them cannot be read in the store.
        """
        [found] = await self.for_submissions(owner, [(key, specs)])
        if isinstance(found, KestrelError):
            raise found
        return found

    async def for_submissions(
        self, owner: str, several: Sequence[tuple[str, Sequence[JobSpec]]]
    ) -> list[ForSubmission | KestrelError]:
        """Finds what each of several submissions depends on, in one look, or why it cannot be read.

        Args:
            several: the key and the jobs of each.
        """
        wanted = [_Wanted.of(owner, key, specs) for key, specs in several]

        def known(read: Reads) -> list[ForSubmission | KestrelError]:
            return [each.known(read) for each in wanted]

        def concerns(ended: JobRecord) -> bool:
            return any(each.concerns(ended) for each in wanted)

        return await self.ask(known, concerns)

    def _on_job_ended(self, told: JobEnded) -> None:
        for ended in self._under_way:
            ended.append(told.record)
