"""Users of a simulated pool: they ask, and ask again until somebody answers."""

from __future__ import annotations

from collections.abc import Callable

from kestrelctl.core.effects import Answer
from kestrelctl.core.events import Cancel, Drain, Event, Resume, Retry, Submit
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.model.spec import JobSpec
from kestrelctl.simulate.audit import Audit
from kestrelctl.simulate.clock import Clock
from kestrelctl.simulate.manager import Manager
from kestrelctl.simulate.workload import NOWHERE, Submission

#: How long they wait for an answer, or for the manager to be there, before they ask again.
PATIENCE_SECONDS = 5.0


class Users:
    """Everybody who talks to the manager; one of them owns all jobs.

    Attributes:
        open: requests without an answer.
        submissions: name of the request -> job id, once acknowledged.
    """

    NAME = "ada@example"

    def __init__(self, clock: Clock, audit: Audit) -> None:
        self.clock = clock
        self.audit = audit
        self.manager: Manager | None = None
        self.open: dict[str, Callable[[str], None]] = {}
        self.submissions: dict[int, int] = {}
        self._asked = 0
        self._given_up: set[int] = set()
        self._specs: dict[str, tuple[int, JobSpec]] = {}
        self._plans: list[Submission] = []

    # -- what they want ----------------------------------------------------------------------------

    def plan(self, submissions: list[Submission]) -> None:
        """Has these jobs handed in, cancelled and retried at their times."""
        for which, submission in enumerate(submissions):
            self._plans.append(submission)
            self.clock.after(submission.at_seconds, self.submit, which)

    def submit(self, which: int) -> None:
        """Hands in a planned job."""

        def ask(request: str) -> None:
            self._specs[request] = (which, self._plans[which].spec)
            self._tell(
                Submit(
                    at=self.clock.now,
                    id=request,
                    request=request,
                    owner=self.NAME,
                    spec=self._plans[which].spec,
                )
            )

        self._ask("submit", ask)

    def cancel(self, job_id: int) -> None:
        """Has a job stopped."""
        self._ask(
            "cancel",
            lambda request: self._tell(
                Cancel(
                    at=self.clock.now,
                    id=request,
                    request=request,
                    by=self.NAME,
                    admin=False,
                    job_id=job_id,
                )
            ),
        )

    def give_up_hopeless(self, jobs: list[JobRecord]) -> None:
        """Has those of these jobs stopped that no machine can run, known to their owner or not."""
        for job in jobs:
            if job.spec.requires == NOWHERE and job.job_id not in self._given_up:
                self._given_up.add(job.job_id)
                self.cancel(job.job_id)

    def retry(self, job_id: int) -> None:
        """Has all of a job that ended badly run again."""

        def ask(request: str) -> None:
            assert self.manager is not None
            store = self.manager.store
            store.flush()
            [record] = store.tables.jobs(ids=[job_id])
            self._tell(
                Retry(
                    at=self.clock.now,
                    id=request,
                    request=request,
                    by=self.NAME,
                    admin=False,
                    job_id=job_id,
                    record=None if record.state == "active" else record,
                    indexes=store.tables.ended_badly(job_id),
                    rest=True,
                )
            )

        self._ask("retry", ask)

    def drain(self, worker: str) -> None:
        """Has a worker drained, if the manager is there."""
        if self.manager is not None and self.manager.reachable:
            self._tell(Drain(at=self.clock.now, id="drain", worker=worker, by=self.NAME))

    def resume(self, worker: str) -> None:
        """Has a worker back."""
        if self.manager is None or not self.manager.reachable:
            self.clock.after(PATIENCE_SECONDS, self.resume, worker)
        else:
            self._tell(Resume(at=self.clock.now, id="resume", worker=worker))

    # -- asking ------------------------------------------------------------------------------------

    def _ask(self, what: str, ask: Callable[[str], None]) -> None:
        self._asked += 1
        request = f"{what}-{self._asked}"
        self.open[request] = ask
        self._try(request)

    def _try(self, request: str) -> None:
        ask = self.open.get(request)
        if ask is None:
            return
        if self.manager is not None and self.manager.reachable:
            ask(request)
        self.clock.after(PATIENCE_SECONDS, self._try, request)

    def _tell(self, event: Event) -> None:
        assert self.manager is not None
        self.manager.handle(event)

    def answered(self, answer: Answer) -> None:
        """The manager answers a request; a second answer to the same one is another job."""
        self.open.pop(answer.request, None)
        if answer.error is not None or answer.request not in self._specs:
            return
        which, spec = self._specs[answer.request]
        self.audit.expect(answer.tasks == spec.count, f"{answer} is not about {spec.count} tasks")
        self.audit.answered_submission(answer.job_id, answer.tasks)
        self.submissions[which] = answer.job_id
        plan = self._plans[which]
        if plan.cancel_after_seconds is not None:
            self.clock.after(plan.cancel_after_seconds, self.cancel, answer.job_id)
        if plan.retry_after_seconds is not None:
            self.clock.after(plan.retry_after_seconds, self.retry, answer.job_id)
