"""A plan: which tasks go where, and which workers have room for nothing. Pure: it changes nothing
that it reads.

The steps are: filter (which classes can run a shape), fit (what a worker has room for), order (the
first turn that has something that fits, see `demand`; of that turn the job that came first), assign
(the least flexible classes first, and in rounds, so that no worker of these is filled before the
others have anything; a job with a `rank` gets nothing of a class while one that it prefers has
room, and then flexibility does not count).

Sets of shapes are integers, a bit for each shape, so that one operation tells which of all the
shapes that a user has waiting fit into what a worker has free. `attempts.hand_out` carries a plan
out. `shortage` finds what the pool lacks for the rest.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from math import inf

from kestrelctl.core.jobs.fair_share import Sharer, weight_of
from kestrelctl.core.jobs.gates import takeable
from kestrelctl.core.jobs.job import Job, Order
from kestrelctl.core.jobs.quota import Quota, counted
from kestrelctl.core.jobs.tokens import TokensLeft
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.scheduling.demand import Demand, Line, Turn, is_short
from kestrelctl.core.scheduling.match import Terms
from kestrelctl.core.scheduling.offer import Offer
from kestrelctl.core.scheduling.supply import ClassSupply, Supply
from kestrelctl.core.scheduling.together import Together

#: The most classes that are told apart by rank in one plan; those behind them are filled side by
#: side, the higher ranks first.
MOST_RANKS = 16


#: A worker where some short tasks would start at once gets them in no more parts than these.
PARTS = 4


#: The most jobs that ask alike whose waiting tasks are counted; each further job counts as one.
MOST_COUNTED = 256


class Assignment:
    """The next `tasks` tasks of a job go to a worker, each with this claim."""

    __slots__ = ("claim", "job", "tasks")

    def __init__(self, job: Job, tasks: int, claim: Claim) -> None:
        self.job = job
        self.tasks = tasks
        self.claim = claim


class Plan:
    """The plan for the demand of a moment. It is good until the pool changes.

    Attributes:
        assignments: for each worker, in the order in which it shall get them.
        sated: workers that were looked at and have room for nothing that is left.
        together: jobs that span workers, each with the worker and the claim of each of its tasks.
        held_back: bounds of users that left something out.
        too_few: whether a job that spans workers was left out because too few have room.
    """

    __slots__ = ("assignments", "held_back", "sated", "together", "too_few")

    def __init__(self) -> None:
        self.together: list[tuple[Job, list[tuple[Worker, Claim]]]] = []
        self.assignments: dict[Worker, list[Assignment]] = {}
        self.sated: list[Worker] = []
        self.held_back: dict[Quota, None] = {}
        self.too_few = False

    def assign(self, worker: Worker, job: Job, tasks: int, claim: Claim) -> None:
        """Adds tasks of a job to what a worker shall get."""
        known = self.assignments.setdefault(worker, [])
        if known and known[-1].job is job:
            known[-1].tasks += tasks
        else:
            known.append(Assignment(job, tasks, claim))


class Head:
    """The first job of a line, less what a plan has given away.

    Attributes:
        place: where the job comes among those of its user.
        job: the first that has tasks left.
        left: how many of its tasks may still be given away.
        waiting: how many of its tasks wait, limits not considered.
    """

    __slots__ = ("_at", "_line", "job", "left", "place", "waiting")

    def __init__(self, line: Line) -> None:
        self._line = line
        self._at = 0
        self._look()

    def _look(self) -> None:
        self.place, self.job = self._line[self._at]
        self.left = takeable(self.job)
        self.waiting = self.job.waiting

    def take(self, n: int) -> bool:
        """Gives n tasks of the job away; returns whether any job of the line has tasks left."""
        self.left -= n
        self.waiting -= n
        if self.left > 0:
            return True
        self._at += 1
        if self._at == len(self._line):
            return False
        self._look()
        return True


class Remnant:
    """A turn, less what a plan has given away of it.

    Attributes:
        shapes, short: as those of the turn.
    """

    __slots__ = ("_heads", "_order", "shapes", "short", "turn")

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.shapes = turn.shapes
        self.short = turn.short
        self._heads: dict[int, Head] = {}
        self._order: list[int] = []

    def head(self, bit: int) -> Head:
        """The first job of those that ask for this shape."""
        found = self._heads.get(bit)
        if found is None:
            found = self._heads[bit] = Head(self.turn.lines[bit])
        return found

    def close(self, shapes: int) -> bool:
        """Leaves these shapes out from now on; returns whether any is left."""
        self.shapes &= ~shapes
        self.short &= ~shapes
        return bool(self.shapes)

    def first_of(self, shapes: int) -> int:
        """The shape, of these, of the job that came first."""
        if not shapes & (shapes - 1):
            return shapes
        if not self._order:
            self._order = sorted(self.turn.lines, key=self._came)
        for bit in self._order:
            if bit & shapes:
                return bit
        raise ValueError("nobody asks for any of these")

    def before(self, bit: int, besides: int) -> int:
        """The shapes whose first job comes before that of this one, besides some."""
        came = self._came(bit)
        rest, found = self.shapes & ~besides & ~bit, 0
        while rest:
            other = rest & -rest
            rest ^= other
            if self._came(other) < came:
                found |= other
        return found

    def _came(self, bit: int) -> Order:
        """Returns the place, among the user's jobs, of the first that asks for this shape."""
        head = self._heads.get(bit)
        return self.turn.lines[bit][0][0] if head is None else head.place

    def take(self, bit: int, n: int, config: Config) -> None:
        """Gives away n tasks of the first job that asks for this shape."""
        head = self.head(bit)
        before = head.job
        if not head.take(n):
            self.shapes &= ~bit
            self.short &= ~bit
        elif head.job is not before:
            self._order.clear()
            self.short = self.short | bit if is_short(head.job, config) else self.short & ~bit


#: The place of a turn in a plan: its `Turn.order` with what the plan has given counted, a number
#: of its own, and the turn, or what is left of it.
Place = tuple[int, float, float, int, Turn | Remnant]


class Planner:
    """Fills workers for one plan.

    Args:
        now: seconds since the epoch.
        together: whether jobs that span workers are planned for, too.
        shared: whether somebody came of late who had nothing, so that queues are to be short.
    """

    def __init__(
        self,
        demand: Demand,
        supply: Supply,
        config: Config,
        now: float,
        *,
        together: bool,
        shared: bool,
    ) -> None:
        self.found = Plan()
        self._ahead_per_slot = config.shared_ahead_per_slot if shared else config.ahead_per_slot
        self._config = config
        self._now = now
        self._shapes = demand.shapes
        self._supply = supply
        self._tokens = TokensLeft(demand.tokens)
        self._of_tokens = demand.of_tokens
        self._lacking = self._lacking_tokens()
        self._waiting = demand.waiting & ~self._lacking
        self._spanning = demand.spanning & self._waiting
        if not together:
            self._waiting ^= self._spanning
            self._spanning = 0
        self._places: list[Place] = sorted(
            (*turn.order, number, turn)
            for number, turn in enumerate(demand.turns())
            if turn.shapes & self._waiting
            and not (turn.sharer.quotas and self._is_full(turn.sharer))
        )
        self._short = 0
        for _, _, _, _, turn in self._places:
            self._short |= turn.short
        self._shares: dict[int, float] = {}
        self._ranks: dict[int, list[float]] = {}
        self._quotas: dict[Quota, Quota] = {}
        self._alike: dict[int, int] = {}
        self._too_large = 0
        #: The waiting shapes that can run on workers of each class that is looked at.
        self._usable: dict[ClassSupply, int] = {}
        self._together: Together | None = None

    def plan(self) -> Plan:
        """Plans for all that waits and everybody who may take it."""
        shapes, waiting, present = self._shapes, self._waiting, self._supply.present()
        offers: dict[ClassSupply, Iterable[Offer]] = {}
        for cls in present if self._places else ():
            usable = cls.usable(shapes, waiting) if cls.hungry else 0
            if usable:
                self._usable[cls] = usable
                offers[cls] = self._offers_of(cls, usable)
            else:
                self.found.sated += cls.hungry.values()
        if not offers:
            return self.found
        tiers = self._tiers(list(offers))
        if self._spanning:
            usable_of = {cls: cls.usable(shapes, waiting) for cls in present}
            self._together = Together(usable_of, offers, self._config, self._now)
        while True:
            for tier in tiers:
                while self._places and (self._round(tier, offers) or self._widen()):
                    pass
            if self._together is None or not self._start_together(whatever=True):
                return self.found

    def _offers_of(self, cls: ClassSupply, usable: int) -> Iterator[Offer]:
        """Makes the offers of the workers of a class, without those that are full.

        In the first round each is made when its turn comes: of many idle workers few are looked at.
        """
        into, sated = cls.table().into, self.found.sated
        for worker in cls.hungry.values():
            if not self._short and not usable & into(worker.free):
                sated.append(worker)
            else:
                yield Offer(worker, self._config, self._now, self._ahead_per_slot)

    def _tiers(self, classes: list[ClassSupply]) -> list[list[ClassSupply]]:
        """Groups the classes that are filled side by side, in the order in which groups are filled:
        the pool's own before neighbours', and of these the nearer ones first.
        """
        if len(classes) == 1:
            return [classes]
        ranked = [shape for shape in self._shapes if shape.bit & self._waiting and shape.rank]
        for shape in ranked:
            ranks = {_rank_of(cls, shape) for cls in classes} - {-inf}
            self._ranks[shape.bit] = sorted(ranks)[-MOST_RANKS:]
        bits = sum([shape.bit for shape in ranked])
        indexes = (n for n, (*_, turn) in enumerate(self._places) if turn.shapes & bits)
        index = next(indexes, None) if bits else None
        if index is not None:
            left = self._remnant(index)
            first = self._shapes[left.first_of(left.shapes & bits).bit_length() - 1]
            own = [cls for cls in classes if not cls.cls.distance_seconds]
            lent = [cls for cls in classes if cls.cls.distance_seconds]
            own.sort(key=lambda cls: -_rank_of(cls, first))
            lent.sort(key=lambda cls: (-_rank_of(cls, first), cls.cls.distance_seconds))
            return [own, lent] if lent else [own]
        tiers: dict[tuple[float, int], list[ClassSupply]] = {}
        for cls in classes:
            place = (cls.cls.distance_seconds, self._usable[cls].bit_count())
            tiers.setdefault(place, []).append(cls)
        return [tiers[place] for place in sorted(tiers)]

    def _round(self, tier: list[ClassSupply], offers: dict[ClassSupply, Iterable[Offer]]) -> bool:
        """Gives each worker a share of something; returns whether anybody got anything."""
        if self._together is not None:
            self._start_together()
        progress = False
        for cls in tier:
            usable = self._usable[cls]
            still: list[Offer] = []
            for offer in offers[cls]:
                if not self._places:
                    return False
                fed = self._feed(offer, cls, usable)
                if fed is None:
                    self.found.sated.append(offer.worker)
                else:
                    still.append(offer)
                    progress = progress or fed
            offers[cls] = still
        return progress

    def _widen(self) -> bool:
        """Lets jobs with a rank go to what they like next best; returns whether there is any."""
        behind = [ranks for ranks in self._ranks.values() if ranks]
        for ranks in behind:
            ranks.pop()
        return bool(behind)

    def _feed(self, offer: Offer, cls: ClassSupply, usable: int) -> bool | None:
        """Gives a worker a share of the first job that it has room for.

        Args:
            usable: the waiting shapes that can run on workers of its class.

        Returns:
            Whether it got one: not yet if the job's rank prefers others; None if it has room for
            nothing.
        """
        worker = offer.worker
        if offer.wants == 0:
            return None
        usable &= ~self._lacking
        if worker.kept_for is not None:
            usable &= worker.kept_for.shape.bit
        fits = 0 if offer.queued else cls.fitting(offer.free) & usable
        if not usable & (fits | self._short):
            return None
        wanting = 0
        for index, (_, _, _, _, turn) in enumerate(self._places):
            mine = turn.shapes & usable
            open_ = mine & (fits | turn.short)
            closed = mine ^ open_
            if not open_:
                wanting |= closed
                continue
            left = self._remnant(index)
            while open_:
                bit = left.first_of(open_)
                open_ ^= bit
                if bit & self._spanning:
                    return False  # Its other members, or who is first, have yet to find a place.
                head = left.head(bit)
                shape = head.job.shape
                terms = cls.terms(shape)
                assert isinstance(terms, Terms)
                before = wanting
                if closed and left.first_of(closed | bit) != bit:
                    before |= closed
                # No task waits there for room that somebody who comes before could have instead.
                ahead = not before or not before & cls.fitting(terms.claim.amounts)
                if not ahead and not bit & fits:
                    continue
                able = self._supply.able(self._shapes, self._waiting, bit)
                waiting = head.waiting
                if bit & left.short:
                    waiting = max(waiting, self._waiting_alike(bit))
                alone = not usable & self._short & ~bit
                room = offer.room_for(head.job, waiting, able, terms, ahead=ahead, alone=alone)
                if not room:
                    # It has no room for others who ask alike either.
                    usable &= ~bit
                    fits &= ~bit
                    if not usable & (fits | self._short):
                        return None
                    continue
                if left.turn.sharer.quotas:
                    room = self._allowed(left, counted(terms.claim.amounts, shape.tokens), room)
                    open_ &= left.shapes
                if room:
                    ranks = self._ranks.get(bit)
                    if ranks and terms.rank < ranks[-1]:
                        return False
                    share = max(1, waiting // (2 * able))
                    self._give(offer, index, bit, room, share, terms, starts=bool(bit & fits))
                    return True
            wanting |= closed
        return None

    def _waiting_alike(self, bit: int) -> int:
        """Counts the tasks of a shape that this plan has left, whosever they are.

        A worker gets its share of these, not of one job's: of many small jobs it gets one whole
        rather than a task of each, which would be a message for each.
        """
        found = self._alike.get(bit)
        if found is None:
            lines = [
                (place[4].turn if isinstance(place[4], Remnant) else place[4]).lines[bit]
                for place in self._places
                if place[4].shapes & bit
            ]
            jobs = list(islice(chain.from_iterable(lines), MOST_COUNTED))
            beyond = sum(map(len, lines)) - len(jobs)
            found = self._alike[bit] = beyond + sum(job.waiting for _, job in jobs)
        return found

    def _remnant(self, index: int) -> Remnant:
        """Returns what is left of the turn at a place of the order."""
        priority, held, handed, number, turn = self._places[index]
        if isinstance(turn, Turn):
            turn = Remnant(turn)
            self._places[index] = (priority, held, handed, number, turn)
        return turn

    def _share_of(self, turn: Turn) -> float:
        """The part of a user of the shares of all who want something at his priority."""
        together = self._shares.get(turn.priority)
        if together is None:
            alike = [other for level, _, _, _, other in self._places if level == -turn.priority]
            turns = [other.turn if isinstance(other, Remnant) else other for other in alike]
            together = sum([each.sharer.share for each in turns], 0.0)
            self._shares[turn.priority] = together
        return turn.sharer.share / together

    def _give(
        self,
        offer: Offer,
        index: int,
        bit: int,
        room: int,
        share: int,
        terms: Terms,
        *,
        starts: bool,
    ) -> None:
        left = self._remnant(index)
        turn = left.turn
        head = left.head(bit)
        job = head.job
        short = is_short(job, self._config)
        if short:
            # Tasks that only wait there go in few messages; those that start are for idlers, too.
            share = max(share, room // PARTS if starts else room)
        n = min(room, share, head.left)
        if job.shape.tokens:
            n = min(n, self._tokens.times_free(job.shape.tokens))
        if offer.wants is not None:
            n = min(n, offer.wants)
        if n > 1 and not short:
            # Others may want something, too, and a task that runs for long cannot be taken back.
            n = min(n, max(1, int(room * self._share_of(turn))))
        for quota in turn.sharer.quotas:
            self._quotas[quota].take(counted(terms.claim.amounts, job.shape.tokens), n)
        offer.give(job, n, terms.claim)
        self.found.assign(offer.worker, job, n, terms.claim)
        self._take(index, bit, n, n * weight_of(terms.claim))

    def _take(self, index: int, bit: int, n: int, weight: float) -> None:
        """Takes n tasks that were given away out of their turn; `weight` is that of them all."""
        left = self._remnant(index)
        turn, job = left.turn, left.head(bit).job
        priority, held, handed, number, _ = self._places.pop(index)
        left.take(bit, n, self._config)
        if bit in self._alike:
            self._alike[bit] -= n
        if left.shapes:
            more = weight / turn.sharer.share
            insort(self._places, (priority, held + more, handed + more, number, left))
            self._short |= left.short
        else:
            self._shares.pop(turn.priority, None)
        if job.shape.tokens:
            self._tokens.give(job.shape.tokens, n)
            self._lacking |= self._lacking_tokens()
            # Turns that wait for nothing else are left out.
            self._places = [place for place in self._places if place[4].shapes & ~self._lacking]
            self._shares.clear()

    def _start_together(self, *, whatever: bool = False) -> bool:
        """Places jobs that span workers whose turn has come, and leaves out of this plan those for
        which there is too little room.

        Args:
            whatever: also at workers that somebody who comes before could use.

        Returns:
            Whether it did any of that.
        """
        changed, index = False, 0
        while index < len(self._places):
            shapes = self._places[index][4].shapes & self._spanning & ~self._lacking
            bit = self._remnant(index).first_of(shapes) if shapes else 0
            if not bit or not self._place_members(index, bit, whatever):
                index += 1
                continue
            changed = True
            if index < len(self._places) and not self._places[index][4].shapes:
                self._places.pop(index)
                self._shares.clear()
            index = 0
        return changed

    def _place_members(self, index: int, bit: int, whatever: bool) -> bool:
        """Places all members of a job, or closes its shape; False if it may have to wait for others
        in this plan.
        """
        assert self._together is not None
        left = self._remnant(index)
        if bit & self._too_large:
            left.close(bit)
            return True
        job = left.head(bit).job
        before = left.before(bit, self._spanning)
        for place in self._places[:index]:
            before |= place[4].shapes & ~self._spanning
        found = self._together.members(
            job, left.head(bit).left, before, partial(self._may_have_all, left, job)
        )
        if found.places is None:
            self.found.too_few = True
            if not left.turn.sharer.quotas:
                self._too_large |= bit  # For anybody who asks alike: there will be no more room.
            self.found.held_back.update(dict.fromkeys(left.turn.sharer.quotas))
            left.close(bit)
            return True
        if found.taken_by_others and not whatever:
            return False
        claims = [terms.claim for _, terms in found.places]
        tokens = job.shape.tokens
        for offer, terms in found.places:
            for quota in left.turn.sharer.quotas:
                self._quotas[quota].take(counted(terms.claim.amounts, tokens), 1)
            offer.give(job, 1, terms.claim)
        members = [(offer.worker, terms.claim) for offer, terms in found.places]
        self.found.together.append((job, members))
        self._take(index, bit, len(claims), sum(map(weight_of, claims), 0.0))
        return True

    def _may_have_all(self, left: Remnant, job: Job, claim: Claim) -> bool:
        """Whether the quotas of a user leave room for all members of a job, each charged that."""
        span = job.shape.span
        return self._allowed(left, counted(claim.amounts, job.shape.tokens), span) >= span

    def _lacking_tokens(self) -> int:
        """Shapes for which too few of the pool's tokens are left."""
        lacking = 0
        for shape in self._of_tokens:
            if self._tokens.times_free(shape.tokens) < shape.span:
                lacking |= shape.bit
        return lacking

    def _is_full(self, sharer: Sharer) -> bool:
        """Whether a user, or his group, may have nothing more at workers whatever it is."""
        full = [quota for quota in sharer.quotas if quota.is_full]
        self.found.held_back.update(dict.fromkeys(full))
        return bool(full)

    def _allowed(self, left: Remnant, amounts: Mapping[str, int], room: int) -> int:
        """Tells how many of these tasks the quotas of a user allow."""
        for quota in left.turn.sharer.quotas:
            held = self._quotas.get(quota)
            if held is None:
                held = self._quotas[quota] = quota.copy()
            room = held.room(amounts, room)
            if not room:
                self.found.held_back[quota] = None
            if held.is_full:
                left.shapes = left.short = 0
        return room


def plan(
    demand: Demand,
    supply: Supply,
    config: Config,
    now: float,
    *,
    together: bool = True,
    shared: bool = False,
) -> Plan:
    """Plans for all that waits and everybody who may take it.

    Args:
        now: seconds since the epoch.
        together: whether jobs that span workers are planned for, too: for each of these every
            worker is looked at.
        shared: whether somebody came of late who had nothing, so that queues are to be short.
    """
    return Planner(demand, supply, config, now, together=together, shared=shared).plan()


def _rank_of(cls: ClassSupply, shape: Shape) -> float:
    terms = cls.terms(shape)
    return terms.rank if isinstance(terms, Terms) else -inf
