"""Users of a simulated pool: they ask, and ask again until somebody answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random

import msgspec

from kestrel_worlds.audit import Audit
from kestrel_worlds.network import DOMAIN, Server
from kestrel_worlds.simulated_manager import admin_of
from kestrel_worlds.simulated_process import SimulatedProcess
from kestrel_worlds.simulation_clock import SimulationClock
from kestrel_worlds.workload import (
    GROUPS,
    NOWHERE,
    PolicyChange,
    ShareSetting,
    Submission,
    TokenChange,
)
from kestrelctl.core.model.job.after import After
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import JobRecord
from kestrelctl.errors import StoreFull
from kestrelctl.protocol import answers, codec, directions, requests
from kestrelctl.protocol.chat.body import JUST_TEXT, ChatMarks

#: How long a user waits for an answer, or after an error, before asking again.
PATIENCE_SECONDS = 5.0


class Question(msgspec.Struct):
    """A request without an answer."""

    request: requests.Request
    asked_at: float  #: or when the user was last told that the manager's disk is full


class User(SimulatedProcess):
    """Somebody with an account, and a client that is always there.

    Attributes:
        open: requests that were asked and not answered, by id.
    """

    def __init__(
        self,
        account: str,
        clock: SimulationClock,
        random: Random,
        server: Server,
        audit: Audit,
    ) -> None:
        super().__init__(account.partition("@")[0], f"{account}/1", clock, random, server, audit)
        self.open: dict[str, Question] = {}
        self._asked = 0

    def on_ended(self) -> None:
        """Does nothing: a user keeps nothing in memory that matters."""

    def said(self, payload: str, to: str) -> None:
        """Only tells the story: the manager's audit hears of what comes of it."""
        self.clock.tell(self.name, "asks", payload)

    async def main(self) -> None:
        self.connection(self).start()
        await asyncio.Event().wait()

    def ask(self, request: requests.Request) -> str:
        """Asks until there is an answer; returns the id of the request."""
        self._asked += 1
        what = f"{self.name}-{self._asked}"
        self.open[what] = Question(msgspec.structs.replace(request, id=what), self.clock.now)
        self._try(what)
        return what

    def _try(self, what: str) -> None:
        if what in self.open:
            self._send(what)
            self.clock.after(PATIENCE_SECONDS, self._try, what)

    def _send(self, what: str) -> None:
        if self.session is not None:
            self.session.send(codec.encode(self.open[what].request), f"jobs@{self.server.domain}")

    # -- Listener ----------------------------------------------------------------------------------

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        answer = directions.answers.decode(payload)
        if isinstance(answer, answers.Ended):
            return
        question = self.open.get(answer.id)
        if isinstance(answer, answers.Failed) and answer.code == StoreFull.code:
            if question is not None:
                question.asked_at = self.clock.now
            return
        self.open.pop(answer.id, None)
        self.on_answer(answer)

    def on_answer(self, answer: answers.Reply) -> None:
        """Takes an answer, perhaps a second one to the same question."""

    def on_online(self) -> None:
        for what in self.open:
            self._send(what)

    def on_offline(self, why: str) -> None:
        pass

    def on_body(self, sender: str, to: str, body: str, marks: ChatMarks = JUST_TEXT) -> None:
        raise AssertionError("the pool does not chat")

    def on_bounce(self, sender: str, condition: str) -> None:
        """Does nothing: the manager is away, and what is open is asked again."""

    def on_presence(self, sender: str, to: str, kind: str) -> None:
        raise AssertionError("the pool shows no presence to users")


def account_of(name: str, domain: str = DOMAIN) -> str:
    """Returns the account of a user with this name."""
    return f"{name}@users.{domain}"


class Owner(User):
    """A user who owns jobs.

    Args:
        name: the part of the account before the `@`.

    Attributes:
        submissions: planned job -> its id, once acknowledged.
    """

    def __init__(
        self, name: str, clock: SimulationClock, random: Random, server: Server, audit: Audit
    ) -> None:
        super().__init__(account_of(name, server.domain), clock, random, server, audit)
        self.submissions: dict[int, int] = {}
        self._plans: list[Submission] = []
        self._plan_of: dict[str, int] = {}
        self._given_up: set[int] = set()
        self._released: set[tuple[int, float]] = set()
        self._thoughts_to_come = 0

    @property
    def settled(self) -> bool:
        """Whether all jobs are in, and nothing is left to be asked or answered."""
        return (
            len(self.submissions) == len(self._plans)
            and not self._thoughts_to_come
            and not self.open
        )

    def plan(self, submissions: Iterable[Submission]) -> None:
        """Hands these jobs in; cancels, retries, holds and releases them at their times."""
        for which, submission in enumerate(submissions):
            self._plans.append(submission)
            self.clock.after(submission.at_seconds, self._submit, which)

    def hand_in(self, spec: JobSpec) -> None:
        """Hands in one more job, at once."""
        self._plans.append(Submission(at_seconds=0.0, spec=spec))
        self._submit(len(self._plans) - 1)

    def _submit(self, which: int) -> None:
        plan = self._plans[which]
        spec = plan.spec
        if plan.after_plan is not None:
            parent = self.submissions.get(plan.after_plan)
            if parent is None:
                self.clock.after(PATIENCE_SECONDS, self._submit, which)
                return
            after = (After(parent, parent, plan.after_end),)
            spec = msgspec.structs.replace(spec, after=after)
        if plan.each_plan is not None:
            parent = self.submissions.get(plan.each_plan)
            if parent is None:
                self.clock.after(PATIENCE_SECONDS, self._submit, which)
                return
            if spec.span == self._plans[plan.each_plan].spec.span == 1:
                spec = msgspec.structs.replace(spec, after_each=parent)
        request = requests.SubmitJob(spec=spec, watch=True, key=f"plan {which}")
        self._plan_of[self.ask(request)] = which

    def on_answer(self, answer: answers.Reply) -> None:
        """Checks that one job comes of a submission, however often it was sent."""
        if not isinstance(answer, answers.Submitted):
            return
        which = self._plan_of[answer.id]
        plan = self._plans[which]
        self.audit.expect(
            answer.tasks == plan.spec.count, f"{answer} is not about {plan.spec.count} tasks"
        )
        known = self.submissions.get(which)
        if known is not None:
            self.audit.expect(
                known == answer.job_id, f"{answer} is not about job {known}, as an earlier answer"
            )
            return
        self.submissions[which] = answer.job_id
        if plan.cancel_after_seconds is not None:
            tasks = plan.cancel_tasks
            self._think_again(
                plan.cancel_after_seconds, lambda job_id: self._cancel(job_id, tasks), answer.job_id
            )
        if plan.retry_after_seconds is not None:
            self._think_again(plan.retry_after_seconds, self._retry, answer.job_id)
        if plan.hold_after_seconds is not None:
            self._think_again(plan.hold_after_seconds, self._hold, answer.job_id)
        if plan.release_after_seconds is not None:
            self._think_again(plan.release_after_seconds, self._release, answer.job_id)

    def _think_again(self, after_seconds: float, ask: Callable[[int], None], job_id: int) -> None:
        self._thoughts_to_come += 1
        self.clock.after(after_seconds, self._ask_now, ask, job_id)

    def _ask_now(self, ask: Callable[[int], None], job_id: int) -> None:
        self._thoughts_to_come -= 1
        ask(job_id)

    def _cancel(self, job_id: int, tasks: tuple[int, ...] = ()) -> None:
        self.ask(requests.CancelJobs(jobs=str(job_id), task_ids=list(tasks)))

    def _retry(self, job_id: int) -> None:
        self.ask(requests.RetryJobs(jobs=str(job_id)))

    def _hold(self, job_id: int) -> None:
        self.ask(requests.HoldJobs(jobs=str(job_id), reason="second thoughts"))

    def _release(self, job_id: int) -> None:
        self.ask(requests.ReleaseJobs(jobs=str(job_id)))

    def release_held(self, jobs: list[JobRecord]) -> None:
        """Releases those of these jobs that are his and on hold, whoever held them; once for each
        hold.
        """
        for job in self._own(jobs):
            if job.hold is not None and (job.job_id, job.hold.at) not in self._released:
                self._released.add((job.job_id, job.hold.at))
                self._release(job.job_id)

    def give_up_hopeless(self, jobs: list[JobRecord]) -> None:
        """Cancels those of these jobs that are his and that no machine can run, acknowledged or
        not.
        """
        for job in self._own(jobs):
            if job.spec.requires == NOWHERE and job.job_id not in self._given_up:
                self._given_up.add(job.job_id)
                self._cancel(job.job_id)

    def _own(self, jobs: list[JobRecord]) -> list[JobRecord]:
        return [job for job in jobs if job.owner == account_of(self.name, self.server.domain)]


class Operator(User):
    """An admin: drains workers and has them back, sets policies, shares and what the pool has."""

    def __init__(
        self, clock: SimulationClock, random: Random, server: Server, audit: Audit
    ) -> None:
        super().__init__(admin_of(server.domain), clock, random, server, audit)
        self._wish: dict[str, str] = {}

    def drain(self, worker: str) -> None:
        """Drains the worker of that address."""
        self._want(worker, requests.DrainWorkers(names=[worker]))

    def resume(self, worker: str) -> None:
        """Resumes a worker."""
        self._want(worker, requests.ResumeWorkers(names=[worker]))

    def plan(
        self,
        policies: Iterable[PolicyChange],
        tokens: Iterable[TokenChange],
        shares: Iterable[ShareSetting],
    ) -> None:
        """Puts policies in force, and sets the tokens of the pool and the shares of owners and
        groups, at their times.
        """
        for share in shares:
            self.clock.after(share.at_seconds, self._want, f"share {share.name}", _asked(share))
        for token in tokens:
            wish: requests.Request = requests.RemoveAsset(name=token.name)
            if token.total:
                wish = requests.SetAsset(name=token.name, total=token.total)
            self.clock.after(token.at_seconds, self._want, f"asset {token.name}", wish)
        for each in policies:
            policy = requests.SetPolicy(name=each.name, workers=each.workers, text=each.text)
            self.clock.after(each.at_seconds, self._want, f"policy {each.name}", policy)

    def _want(self, what: str, request: requests.Request) -> None:
        """Asks for something in place of an earlier wish, which is not repeated any more."""
        self.open.pop(self._wish.get(what, ""), None)
        self._wish[what] = self.ask(request)


def _asked(share: ShareSetting) -> requests.Request:
    if share.name in GROUPS:
        return requests.ChangeGroup(name=share.name, change=share.change)
    return requests.ChangeUser(user=account_of(share.name), change=share.change, group=share.group)
