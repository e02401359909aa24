"""Workers that speak the messages of `protocol.chat.profile`: their agents are here, at the edge.

The rest of the pool talks to them as to any other: what it sends goes to the agent, which decides
what starts, and what the agent has to say comes back as the worker's own word.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator

from kestrelctl.core.agent.agent import Agent, LocalAttempt
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.worker.ad import WorkerAd, bookable, unit_ids
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.errors import UsageError
from kestrelctl.protocol import codec, workers
from kestrelctl.protocol.chat import profile


class _Worker:
    """One worker's session.

    Attributes:
        asked: it was asked what it runs, and has yet to say.
        cancelled: numbers of attempts that it was asked to end.
        sent_at: when each running attempt was sent, by number.
    """

    def __init__(self, ad: WorkerAd) -> None:
        self.ad = ad
        self.agent = Agent(bookable(ad), units=unit_ids(ad))
        self.incarnation = secrets.token_hex(8)
        self.asked = False
        self.cancelled: set[int] = set()
        self.sent_at: dict[int, float] = {}

    def offers(self, ad: WorkerAd) -> None:
        """Takes another ad than before; what runs goes on."""
        self.agent.resize(bookable(ad), unit_ids(ad))
        self.ad = ad

    def runs(self, ids: list[str], claim_of: Callable[[int], Claim], now: float) -> None:
        """Takes over what the worker says it runs: nothing else runs any more.

        Args:
            claim_of: what a task of a job takes.
        """
        tasks = [found for text in ids if (found := profile.TaskId.parse(text)) is not None]
        said = {task.number for task in tasks}
        running, free = self.agent.running, self.agent.free
        for number in running.keys() - said:
            running.pop(number).claim.release(free)
            self.sent_at.pop(number, None)
            self.cancelled.discard(number)
        for task in tasks:
            if task.number not in running:
                # Another manager, or an earlier session, had sent it.
                template, claim = (
                    Template(job_id=task.job_id, program=Program(argv=())),
                    claim_of(task.job_id),
                )
                running[task.number] = LocalAttempt(
                    task.number, template, task.index, None, claim, task.seal, now
                )
                for name in claim.amounts:
                    free.setdefault(name, 0)  # it may offer less than before
                claim.charge(free)

    def may_end(self, task: profile.TaskId) -> bool:
        """Whether a task can have been sent: it does not wait here, and no other has its number."""
        running = self.agent.running.get(task.number)
        if running is not None:
            return running.seal == task.seal
        return all(waiting.number != task.number for waiting in self.agent.queue)


class ProfileWorkers:
    """All such workers of a pool.

    Args:
        deliver: takes a message as if the worker of that address had sent it.
        send: sends a message to an address, as the body of a chat message.
        claim_of: what a task of a job takes, as far as the pool knows.
        now: seconds since the epoch, steady.
    """

    def __init__(
        self,
        deliver: Callable[[str, workers.FromWorker], None],
        send: Callable[[str, profile.ToProfileWorker], None],
        claim_of: Callable[[int], Claim],
        now: Callable[[], float],
    ) -> None:
        self._deliver = deliver
        self._send = send
        self._claim_of = claim_of
        self._now = now
        self._workers: dict[str, _Worker] = {}
        #: Addresses whose end the server will announce.
        self._shown: set[str] = set()

    def __contains__(self, jid: str) -> bool:
        return jid in self._workers

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._workers))

    def is_shown(self, jid: str) -> bool:
        """Whether the server announces the end of that session: it has sent its presence."""
        return jid in self._shown

    def on_presence(self, jid: str, kind: str) -> None:
        """Notes that a worker of any kind shows itself, or that its session has ended."""
        if kind == "available":
            self._shown.add(jid)
        elif kind == "unavailable":
            self._shown.discard(jid)
            self.forget(jid)

    def on_online(self) -> None:
        """Notes a new session of the manager: others that had shown themselves may have gone."""
        self._shown &= self._workers.keys()

    def forget(self, jid: str) -> None:
        """Forgets a session that is gone; what it had is the pool's business."""
        self._workers.pop(jid, None)

    # -- from the worker ---------------------------------------------------------------------------

    def take(self, jid: str, message: profile.FromProfileWorker) -> None:
        """Takes in what a worker says.

        Raises:
            UsageError: it cannot be meant.
        """
        if isinstance(message, profile.Profile):
            self._join(jid, message)
        else:
            self._finish(jid, message)

    def _join(self, jid: str, message: profile.Profile) -> None:
        ad = profile.ad_of(message, jid.partition("@")[0])
        worker = self._workers.get(jid)
        # A worker with another offer runs what it ran before. A new session runs nothing, unless
        # it says so: one that did not show itself may have taken the place of another unnoticed.
        same = worker is not None and not worker.asked and jid in self._shown
        if worker is None:
            worker = self._workers[jid] = _Worker(ad)
        worker.offers(ad)
        if message.running is not None or not same:
            worker.runs(message.running or [], self._claim_of, self._now())
        worker.asked = False
        self._hello(jid, worker)

    def _hello(self, jid: str, worker: _Worker) -> None:
        holds, claims, seals = worker.agent.holds()
        self._deliver(
            jid,
            workers.Hello(
                version=workers.VERSION,
                incarnation=worker.incarnation,
                greeting=worker.agent.greeting,
                ad=worker.ad,
                holds=holds,
                claims=claims,
                seals=seals,
            ),
        )

    def _finish(self, jid: str, message: profile.Finish) -> None:
        task = profile.TaskId.parse(message.id)
        worker = self._workers.get(jid)
        if task is None or (worker is not None and not worker.may_end(task)):
            raise UsageError(f"no task was sent with the id {message.id[:100]!r}")
        number, now = task.number, self._now()
        if worker is None or number not in worker.agent.running:
            # It was given up meanwhile, or sent before a restart: the seal tells whether it was.
            result = profile.result_of(message, task, now=now, sent_at=now, cancelled=False)
            self._deliver(jid, workers.Report(results=[result], seals=[task.seal]))
            if worker is None:
                self._send(jid, workers.Who())
            return
        cancelled = number in worker.cancelled
        sent_at = worker.sent_at.pop(number, now)
        worker.cancelled.discard(number)
        worker.agent.on_completion(
            profile.result_of(message, task, now=now, sent_at=sent_at, cancelled=cancelled), now
        )
        self._go_on(jid, worker)

    # -- from the pool -----------------------------------------------------------------------------

    def tell(self, jid: str, message: workers.ToWorker) -> None:
        """Takes what the pool says to one of these workers."""
        worker = self._workers[jid]
        agent, now = worker.agent, self._now()
        match message:
            case workers.Welcome():
                kill = agent.on_welcome(message.greeting, message.kill, now, now)
                if agent.welcomed:
                    self._send(jid, profile.Welcomed())
                    self._cancel(jid, worker, kill)
            case workers.Run():
                agent.on_ack(message.ack)
                if not agent.welcomed:
                    return
                refused = agent.on_run(
                    message.spans,
                    message.claims,
                    message.jobs,
                    message.items,
                    message.forget,
                    now,
                    message.counts,
                    hosts=message.hosts,
                )
                if refused:
                    self._later(jid, workers.Returned(numbers=refused))
            case workers.Ack():
                agent.on_ack(message.numbers)
            case workers.Kill():
                self._cancel(jid, worker, agent.on_kill(message.numbers, now, now))
            case workers.Recall():
                self._later(jid, workers.Returned(numbers=agent.on_recall(message.numbers)))
            case workers.Who():
                self.ask(jid)
                return
            case workers.Refused():
                self.refuse(jid, message.reason)
                return
            case _:  # how often to give a sign of life: it is asked for them (`profile_pings`)
                return
        self._go_on(jid, worker)

    def ask(self, jid: str) -> None:
        """Asks a worker for its profile, perhaps one of an earlier manager."""
        worker = self._workers.get(jid)
        if worker is not None:
            worker.asked = True
        self._send(jid, workers.Who())

    def refuse(self, jid: str, reason: str) -> None:
        """Tells somebody, who may be no worker at all, why a message was not accepted."""
        worker = self._workers.get(jid)
        if worker is not None and not worker.agent.welcomed:
            self.forget(jid)
        self._send(jid, workers.Refused(reason=reason))

    def _cancel(self, jid: str, worker: _Worker, numbers: list[int]) -> None:
        for number in numbers:
            worker.cancelled.add(number)
            attempt = worker.agent.running[number]
            self._send(jid, profile.CancelTask(id=str(profile.TaskId(number, attempt.seal))))

    def _go_on(self, jid: str, worker: _Worker) -> None:
        """Sends what can start, and reports what has ended."""
        agent = worker.agent
        if not agent.welcomed:
            return
        now = self._now()
        while (attempt := agent.start_next(now)) is not None:
            message = profile.task_message(attempt)
            if codec.fits(codec.encode_for_chat(message)):
                worker.sent_at[attempt.number] = now
                self._send(jid, message)
                continue
            finish = profile.Finish(id=message.id, status=126, error="too large for one message")
            task = profile.TaskId(attempt.number, attempt.seal)
            agent.on_completion(
                profile.result_of(finish, task, now=now, sent_at=now, cancelled=False), now
            )
        results = agent.take_report()
        if results:
            self._later(jid, workers.Report(results=results, seals=agent.seals_of(results)))

    def _later(self, jid: str, message: workers.FromWorker) -> None:
        """Has the pool hear a message when it has done what it is about to do."""
        asyncio.get_running_loop().call_soon(self._deliver, jid, message)
