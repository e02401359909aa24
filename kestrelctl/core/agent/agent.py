"""Handles the attempts that one worker session is sent. Pure, like the pool.

Attempts start in the order in which they came, as far as there is room: the manager counts on it. A
result is kept until the manager, after its own commit, acknowledges it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil

import msgspec

from kestrelctl.core.model.end_reason import CANCELLED
from kestrelctl.core.model.job.checkpoint import MadeCheckpoint
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.seal import Seal
from kestrelctl.core.model.worker.assets import MILLI, Amounts, amounts, resized, with_units
from kestrelctl.core.model.worker.claim import Claim, enforced
from kestrelctl.core.model.worker.unit_claim import claim_of

#: A result does not wait longer than this for company, and only while the next task is at hand.
COMPANY_SECONDS = 0.2


#: A worker that pulls asks for so many attempts for each processor that it has.
WANTED_PER_CPU = 2

#: The claim of an attempt that has ended: it charges nothing any more.
ENDED = -1


class LocalAttempt:
    """An attempt as its worker sees it, from its arrival to its end.

    Attributes:
        item: the line of the task, if its job has lines.
        claim: what the pool charges it; the agent charges the same. Once it has started, the claim
            has the units that it was given.
        limits: how much of the assets it may use that the worker watches over.
        seal: shows the pool that it was handed to this worker.
        waited_seconds: from its arrival to its start; 0 until then.
        is_ahead: whether its executor has it, and starts it when an attempt like it has ended.
        is_alone: whether there is nothing to do before and after its command, and it takes no units
            of its own: it may wait at the executor, and others for its place.
        count: its number among the attempts of its task, from 1.
        checkpoint: what it goes on from; None to begin anew.
        hosts: where the members of its job run, if that spans workers.
    """

    __slots__ = (
        "arrived_at",
        "checkpoint",
        "claim",
        "count",
        "hosts",
        "index",
        "is_ahead",
        "is_alone",
        "item",
        "limits",
        "number",
        "seal",
        "template",
        "waited_seconds",
    )

    def __init__(
        self,
        number: int,
        template: Template,
        index: int,
        item: str | None,
        claim: Claim,
        seal: Seal,
        now: float,
        count: int = 1,
        limits: Mapping[str, int] | None = None,
        hosts: Sequence[str] = (),
        *,
        is_alone: bool = False,
    ) -> None:
        self.hosts = hosts
        self.is_alone = is_alone
        self.checkpoint: MadeCheckpoint | None = None
        self.limits = limits or {}
        self.number = number
        self.count = count
        self.template = template
        self.index = index
        self.item = item
        self.claim = claim
        self.seal = seal
        self.arrived_at = now
        self.waited_seconds = 0.0
        self.is_ahead = False


class Agent:
    """The attempts of one session: queued, running, and ended but not acknowledged.

    Args:
        assets: how much of each it may use at once, in natural units.
        units: the ids of the units of each asset that has some.
        left: results that an earlier process of this worker left in the spool, with the seals of
            their attempts.
        pulls: whether it is sent no more attempts than it asked for.
    """

    def __init__(
        self,
        assets: Mapping[str, float],
        left: Iterable[tuple[Result, Seal]] = (),
        units: Mapping[str, Sequence[str]] | None = None,
        *,
        pulls: bool = False,
    ) -> None:
        self._indexed: Collection[str] = units or ()
        self.capacity = with_units(amounts(assets), units or {})
        self.free = dict(self.capacity)
        self.templates: dict[int, Template] = {}
        self.queue: deque[LocalAttempt] = deque()
        #: The first of all that wait: the executor has them, in the order in which they are to run.
        self.ahead: dict[int, LocalAttempt] = {}
        #: Those of them that are to be withdrawn, and whether they are given back then.
        self._withdrawn: dict[int, bool] = {}
        self.running: dict[int, LocalAttempt] = {}
        #: Those that the pool has had killed: they may be using their grace.
        self._killed: set[int] = set()
        self.unacknowledged: dict[int, Result] = {}
        self._seals: dict[int, Seal] = {}  # of those, by attempt number
        for result, seal in left:
            self.unacknowledged[result.number] = result
            self._seals[result.number] = seal
        self.fresh: list[Result] = []
        self.fresh_since: float | None = None
        self._asked = False  # a report went out that lets the manager send more
        self.greeting = 0
        self.welcomed = False
        self.draining = False
        # If it pulls, how many are asked for; else None.
        self.wanted: int | None = 0 if pulls else None

    # -- from the manager --------------------------------------------------------------------------

    def on_welcome(self, greeting: int, kill: Sequence[int], now: float, wall: float) -> list[int]:
        """Notes that the session is in: everything unacknowledged is to be reported again.

        A welcome that answers another than the latest hello does not count: what follows it was
        sent before the pool had read the latest.

        Returns:
            Running attempts to be killed, without those that were before: a welcome names what is
            to end whether that is known here or not, and who is asked twice has no grace any more.
        """
        if greeting != self.greeting:
            return []
        self.welcomed = True
        self._asked = False
        before = self._killed
        running = [number for number in self.on_kill(kill, now, wall) if number not in before]
        self.fresh = list(self.unacknowledged.values())
        self.fresh_since = now if self.fresh else None
        return running

    def on_run(
        self,
        spans: Sequence[tuple[int, int, int, int, int, int]],
        claims: Sequence[Amounts],
        templates: Sequence[Template],
        items: Sequence[str],
        forget: Sequence[int],
        now: float,
        counts: Sequence[tuple[int, int]] = (),
        limits: Sequence[tuple[int, Amounts]] = (),
        hosts: Sequence[str] = (),
        checkpoints: Sequence[tuple[int, MadeCheckpoint]] = (),
    ) -> list[int]:
        """Queues attempts.

        Args:
            spans, claims, counts, limits, hosts, checkpoints: as in `protocol.workers.Run`.

        Returns:
            Those that cannot be taken (their template, or that of one before them, is unknown, or
            the session is draining, or they could never start here), to be given back.
        """
        self._asked = False
        for template in templates:
            self.templates[template.job_id] = template
        for job_id in forget:
            self.templates.pop(job_id, None)
        made = [claim_of(claim, self._indexed) for claim in claims]
        # It may have less than when they were sent.
        hopeless = {claim for claim in made if not claim.fits(self.capacity)}
        may_use = [enforced(claim) for claim in claims]
        for place, more in limits:
            if 0 <= place < len(may_use):
                may_use[place] |= enforced(more)
        count_of = dict(counts)
        checkpoint_of = dict(checkpoints)
        refused: list[int] = []
        next_item = iter(items)
        lost = self.draining
        if self.wanted is not None:
            self.wanted = max(0, self.wanted - sum(span[3] for span in spans))
        for number, job_id, index, n, place, mark in spans:
            known = self.templates.get(job_id)
            # A template tells whether its job has items: without it, the items that follow could be
            # anybody's.
            lost = lost or known is None or not 0 <= place < len(made)
            if lost or known is None:
                refused.extend(range(number, number + n))
                continue
            claim = made[place]
            seal = (number, job_id, index, n, mark)
            if claim in hopeless:
                refused.extend(range(number, number + n))
            is_alone = known.program.is_one_process and not claim.takes_units
            for k in range(n):
                item = next(next_item, "") if known.with_items else None
                count = count_of.get(number + k, 1) if count_of else 1
                attempt = LocalAttempt(
                    number + k,
                    known,
                    index + k,
                    item,
                    claim,
                    seal,
                    now,
                    count,
                    may_use[place],
                    hosts,
                    is_alone=is_alone,
                )
                if checkpoint_of:
                    attempt.checkpoint = checkpoint_of.get(number + k)
                if claim not in hopeless:
                    self.queue.append(attempt)
        return refused

    def resize(
        self, assets: Mapping[str, float], units: Mapping[str, Sequence[str]] | None = None
    ) -> list[int]:
        """Sets another capacity from now on; what runs goes on.

        If that is more than there is now, nothing starts until enough of it has ended.

        Returns:
            The attempts that wait here and could never start any more, to be given back.
        """
        before, self._indexed = self.capacity, units or ()
        self.capacity = with_units(amounts(assets), units or {})
        self.free = resized(self.free, before, self.capacity)
        # There may be no place for one when another ends, so they wait here again.
        for number, waiting in self.ahead.items():
            gives_back = self._withdrawn.get(number, False)
            self._withdrawn[number] = gives_back or not waiting.claim.fits(self.capacity)
        made = {a.claim: claim_of(a.claim.amounts, self._indexed) for a in self.queue}
        for attempt in self.queue:
            attempt.claim = made[attempt.claim]
        return self.on_recall([a.number for a in self.queue if not a.claim.fits(self.capacity)])

    def on_kill(self, numbers: Iterable[int], now: float, wall: float) -> list[int]:
        """Ends queued attempts as killed.

        Args:
            wall: the same moment by the machine's clock, for their results.

        Returns:
            Those that run or that the executor has, to be killed; they are reported when they have
            ended.
        """
        wanted = set(numbers)
        kept: deque[LocalAttempt] = deque()
        for attempt in self.queue:
            if attempt.number not in wanted:
                kept.append(attempt)
                continue
            result = Result(
                attempt.number,
                attempt.template.job_id,
                attempt.index,
                Outcome.KILLED,
                wall,
                0.0,
                reason=CANCELLED,
            )
            self._keep(result, attempt.seal, now)
        self.queue = kept
        found = [number for number in (*self.running, *self.ahead) if number in wanted]
        there = self.running.keys() | self.ahead.keys()
        self._killed = (self._killed & there).union(found)
        return found

    def on_recall(self, numbers: Iterable[int]) -> list[int]:
        """Gives back those of these attempts that have not started.

        Those that the executor has are to be withdrawn from it (`to_withdraw`).
        """
        wanted = set(numbers)
        self._withdrawn.update((number, True) for number in self.ahead if number in wanted)
        returned = [attempt.number for attempt in self.queue if attempt.number in wanted]
        if returned:
            self.queue = deque(a for a in self.queue if a.number not in wanted)
        return returned

    def on_ack(self, numbers: Iterable[int]) -> list[int]:
        """Forgets results that are safe; returns those it knew, for the spool to forget too."""
        known = [n for n in numbers if self.unacknowledged.pop(n, None) is not None]
        for number in known:
            del self._seals[number]
        return known

    def drain(self) -> list[int]:
        """Takes nothing new from now on; returns what has not started."""
        self.draining = True
        self._withdrawn.update((number, True) for number in self.ahead)
        returned = [attempt.number for attempt in self.queue]
        self.queue.clear()
        return returned

    def holds(self) -> tuple[list[tuple[int, int, int, int]], list[Amounts], list[Seal]]:
        """All that it has, for the next `hello`, number `greeting`; see `events.Joined`.

        Until the welcome to that, the session takes nothing.

        Returns:
            (number, job id, index, claim) of each attempt, the claims, and the seals.
        """
        self.welcomed = False
        self.greeting += 1
        if self.wanted is not None:
            self.wanted = 0 if self.draining else max(0, self._wanted_at_most - self.waiting)
        self.templates.clear()
        claims: dict[Claim, int] = {}
        going = [*self.running.values(), *self.ahead.values(), *self.queue]
        held = [
            (a.number, a.template.job_id, a.index, claims.setdefault(a.claim, len(claims)))
            for a in going
        ]
        held.extend((r.number, r.job_id, r.index, ENDED) for r in self.unacknowledged.values())
        seals = dict.fromkeys([*(a.seal for a in going), *self._seals.values()])
        return held, [claim.amounts for claim in claims], list(seals)

    # -- from the machine --------------------------------------------------------------------------

    @property
    def can_start(self) -> bool:
        """Whether the first attempt that waits fits into what is free."""
        if not self.ahead:
            return bool(self.queue) and self.queue[0].claim.fits(self.free)
        first = self._first()
        return first is not None and first.claim.fits(self.free)

    def _first(self) -> LocalAttempt | None:
        for number, attempt in self.ahead.items():
            if number not in self._withdrawn:
                return attempt
        return self.queue[0] if self.queue else None

    def start_next(self, now: float) -> LocalAttempt | None:
        """Takes the first attempt that waits and charges its claim.

        The caller starts it at once, or has the executor do so: it counts as running from now on.

        Returns:
            None if there is no attempt, or the first one does not fit.
        """
        while (attempt := self._first()) is not None and attempt.claim.fits(self.free):
            if attempt.is_ahead:
                del self.ahead[attempt.number]
                break
            self.queue.popleft()
            # No manager that is right sends one twice; its place would never be free again.
            if attempt.number not in self.running and attempt.number not in self.unacknowledged:
                break
        else:
            return None
        attempt.waited_seconds = now - attempt.arrived_at
        if attempt.claim.takes_units:
            attempt.claim = attempt.claim.bind(self.free)
        else:
            attempt.claim.charge(self.free)
        self.running[attempt.number] = attempt
        return attempt

    def can_hand(self, most: int) -> bool:
        """Whether the first attempt in the queue may wait at the executor.

        It may if an attempt runs that takes just the same, so that it can start in the place of
        that one: the order in which attempts start stays the same. If more runs than there is room
        for now, an end leaves no place.

        Args:
            most: how many may wait there.
        """
        if not self.queue or len(self.ahead) >= most:
            return False
        first = self.queue[0]
        if not first.is_alone or min(self.free.values(), default=0) < 0:
            return False
        amounts = first.claim.amounts
        for each in self.running.values():
            if each.is_alone and each.claim.amounts == amounts:
                return True
        return False

    def hand_next(self, most: int) -> LocalAttempt | None:
        """Takes the first attempt out of the queue, to wait at the executor.

        Nothing is charged for it; `on_begun` follows, or `on_withdrawn`, or its completion.

        Returns:
            None if it may not.
        """
        while self.can_hand(most):
            attempt = self.queue.popleft()
            number = attempt.number
            if number in self.ahead or number in self.running or number in self.unacknowledged:
                continue
            attempt.is_ahead = True
            self.ahead[number] = attempt
            return attempt
        return None

    def on_begun(self, number: int, at: float) -> None:
        """Notes that an attempt that waited at the executor has started in the place of another.

        The completion of that one, which may follow, releases what it took.
        """
        attempt = self.ahead.pop(number, None)
        if attempt is None:
            return  # `start_next` has taken it
        self._withdrawn.pop(number, None)
        attempt.waited_seconds = at - attempt.arrived_at
        attempt.claim.charge(self.free)
        self.running[number] = attempt

    def to_withdraw(self) -> dict[int, bool]:
        """The attempts that the executor is not to start any more, the last first.

        Returns:
            Whether they are given back then, by number; the others wait here again.
        """
        return dict(reversed(self._withdrawn.items()))

    def on_withdrawn(self, number: int) -> bool:
        """Notes that the executor has not started an attempt and does not have it any more.

        Returns:
            Whether it is to be given back; else it is the first that waits here.
        """
        attempt = self.ahead.pop(number)
        if self._withdrawn.pop(number, True):
            return True
        attempt.is_ahead = False
        self.queue.appendleft(attempt)
        return False

    def resume(self, attempt: LocalAttempt) -> bool:
        """Holds an attempt as running that an earlier process of this worker had begun.

        Returns:
            Whether that is so: its claim may be more than there is now, or its result be known.
        """
        if attempt.number in self.unacknowledged or not attempt.claim.fits(self.free):
            return False
        attempt.claim.charge(self.free)
        self.running[attempt.number] = attempt
        return True

    def on_completion(self, result: Result, now: float) -> Result:
        """Frees what an attempt took that has ended, and keeps its result.

        Returns:
            The result with the time that the attempt spent waiting here.

        Raises:
            KeyError: no such attempt runs.
        """
        number = result.number
        attempt = self.running.pop(number, None)
        if attempt is not None:
            attempt.claim.release(self.free)
        else:
            attempt = self.ahead.pop(number)
            self._withdrawn.pop(number, None)
        waited_seconds = round(attempt.waited_seconds, 6)
        result = msgspec.structs.replace(result, waited_seconds=waited_seconds)
        self._keep(result, attempt.seal, now)
        return result

    @property
    def _wanted_at_most(self) -> int:
        """The most attempts that may wait here or be asked for, if it pulls."""
        return max(1, ceil(self.capacity.get("cpus", 0) / MILLI)) * WANTED_PER_CPU

    def ask(self) -> int:
        """Tells how many more attempts a worker that pulls wants; they count as asked for now.

        It wants none before half of what may wait here is missing, so that one message asks for
        several.
        """
        if self.wanted is None or self.draining or not self.welcomed:
            return 0
        missing = self._wanted_at_most - self.wanted - self.waiting
        if missing * 2 < self._wanted_at_most:
            return 0
        self.wanted += missing
        return missing

    def running_since(self, moment: float) -> dict[int, float]:
        """The start times of attempts that run and have started by that moment, by number."""
        started = ((a.number, a.arrived_at + a.waited_seconds) for a in self.running.values())
        return {number: at for number, at in started if at <= moment}

    def identity(self, number: int) -> tuple[int, int]:
        """(job id, index) of an attempt that runs, or that the executor has.

        Raises:
            KeyError: no such attempt runs.
        """
        attempt = self.taken(number)
        return attempt.template.job_id, attempt.index

    def taken(self, number: int) -> LocalAttempt:
        """An attempt that runs, or that the executor has.

        Raises:
            KeyError: there is no such attempt.
        """
        return self.running.get(number) or self.ahead[number]

    def _keep(self, result: Result, seal: Seal, now: float) -> None:
        self.unacknowledged[result.number] = result
        self._seals[result.number] = seal
        self.fresh.append(result)
        if self.fresh_since is None:
            self.fresh_since = now

    # -- what to report ----------------------------------------------------------------------------

    def report_at(self) -> float | None:
        """The time to send the fresh results: at once when half of what was queued is done.

        While more waits here than is to be reported, the manager need not hurry, and results travel
        together. Nor need it hurry while it is about to send more, until nothing waits here. An
        attempt that is about to start does not wait any more.
        """
        if self.fresh_since is None or not self.welcomed:
            return None
        waiting, done = len(self.queue) + len(self.ahead), len(self.fresh)
        if not waiting:
            return self.fresh_since
        if not self._asked and (done >= waiting or (done == waiting - 1 and self.can_start)):
            return self.fresh_since
        return self.fresh_since + COMPANY_SECONDS

    def take_report(self) -> list[Result]:
        """The fresh results that are not safe yet; they count as sent from now on."""
        fresh = [result for result in self.fresh if result.number in self.unacknowledged]
        self.fresh, self.fresh_since = [], None
        self._asked = True
        return fresh

    def seal_of(self, result: Result) -> Seal:
        """The seal that shows that an unacknowledged result's attempt was handed to this worker.

        Raises:
            KeyError: it is acknowledged.
        """
        return self._seals[result.number]

    def seals_of(self, results: Iterable[Result]) -> list[Seal]:
        """The same for several, each seal once.

        Raises:
            KeyError: one of them is acknowledged.
        """
        return list(dict.fromkeys(map(self.seal_of, results)))

    @property
    def attempts(self) -> int:
        """The number of attempts that wait, run, or have a result that is to be acknowledged."""
        return self.waiting + len(self.running) + len(self.unacknowledged)

    @property
    def waiting(self) -> int:
        """The number of attempts that have not started."""
        return len(self.queue) + len(self.ahead)

    @property
    def idle(self) -> bool:
        """Whether nothing runs, waits, or has to be reported."""
        return not self.attempts
