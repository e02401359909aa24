"""Users as the queue sees them: what each runs, what each has used lately, and his share.

At one priority, the next task is that of the user who runs the least for his share (max-min
fairness), and among users who run equally little, of the one who was handed the least for his share
(stride scheduling: Waldspurger and Weihl, 1995). Tasks are whole, so nobody can run exactly his
share: a user who ran more of late has a lead, which counts as if he ran more now. A share is the
user's weight, tilted by what he has used lately: a user who had little gets up to twice his weight
until that is made up for, and one who had much gets no less than half of it. So shares follow the
weights over minutes, nobody who comes late stops the others, and nobody is starved for what he used
last week. Half of the usage is forgotten in each half-life, as with HTCondor's `PRIORITY_HALFLIFE`
and Slurm's `PriorityDecayHalfLife`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter

import msgspec

from kestrelctl.core.jobs.quota import Quota
from kestrelctl.core.jobs.stored_bytes import StoredBytes
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.files.byte_limit import AS_FOR_ALL, limit_in_force
from kestrelctl.core.model.records import GroupRecord, StoredRecord, UserRecord
from kestrelctl.core.model.worker.claim import Claim

#: Usage tilts a weight by this factor at most, either way.
MOST_TILT = 2.0
LEAST_TILT = 1 / MOST_TILT
#: How often shares are found anew.
ROUND_SECONDS = 1.0
#: A user is ahead of his share by no more than so much time, whatever he has had before.
MOST_AHEAD_SECONDS = 600.0
#: A user who waits for so long though he is not ahead, while others get something, waits in vain.
IN_VAIN_SECONDS = 60.0
#: A user who is ahead by so much time comes behind whoever runs as much as all do on average.
HORIZON_SECONDS = 10.0


#: The weight of an attempt that costs nothing.
COSTLESS = 1.0

_NUMBER = attrgetter("number")

#: The most commands of a user whose run time is remembered.
COMMANDS = 32


def weight_of(claim: Claim) -> float:
    """The weight of one attempt for its user: what the match costs, and one if it costs nothing."""
    return claim.cost or COSTLESS


class Sharer:
    """A user who has, or had, jobs.

    Args:
        astir: the users who may have something; he adds himself when he does.

    Attributes:
        record: what is set for him.
        running: his attempts that are charged at a worker. Only `core.attempts` writes this and
            `charged`.
        charged: the weight of these together.
        handed: the weight that he was handed so far, each attempt divided by his share at the time;
            a user who comes anew begins with as much as those have who had the least.
        turns: the number of priorities at which he has tasks that may be handed out. The queue
            writes it.
        share: what he runs is divided by this.
        latest_weight: the weight of the attempt that began last to be charged.
        served: what he ran since the last round of `Sharers.weigh`, in weighted seconds.
        ahead_seconds: how much longer he has run his share than the one who is the furthest behind
            of those who wait.
        lead: what that adds to what he runs for each unit of his share.
        passed_over_seconds: for how long others were handed something while he had nothing, and was
            not ahead.
        quotas: on what he, and his group, may have at workers at once; those that bound something.
        expected: some of his commands -> the smoothed run time of their tasks, in seconds: what his
            next job with such a command is expected to take until its first task has ended.
        stored: what his tasks have in the file share.
        at_home: whether he has, or had, jobs of the pool's own; if not, his are guests.
        number: his place among all users, as they came.
    """

    __slots__ = (
        "_astir",
        "_since",
        "_unfolded",
        "_usage",
        "_usage_at",
        "ahead_seconds",
        "at_home",
        "charged",
        "expected",
        "handed",
        "latest_weight",
        "lead",
        "number",
        "passed_over_seconds",
        "quotas",
        "record",
        "running",
        "served",
        "share",
        "stored",
        "turns",
    )

    def __init__(
        self, record: UserRecord, config: Config, astir: dict[Sharer, None] | None = None
    ) -> None:
        self.record = record
        self._astir = {} if astir is None else astir
        self.number = 0
        self.running = 0
        self.charged = 0.0
        self.handed = 0.0
        self.turns = 0
        self.share = record.weight
        self.ahead_seconds = self.lead = 0.0
        self.served = self.passed_over_seconds = 0.0
        self.latest_weight = COSTLESS
        self.quotas: tuple[Quota, ...] = ()
        self.at_home = False
        self.expected: dict[tuple[str, ...], float] = {}
        self.stored = StoredBytes(config.files_kept_seconds)
        self._since = 0.0
        self._unfolded = 0.0
        self._usage = record.usage
        self._usage_at = record.usage_at

    @property
    def name(self) -> str:
        """His account."""
        return self.record.name

    @property
    def is_active(self) -> bool:
        """Whether he has something, or waits for it."""
        return self.running > 0 or self.turns > 0

    @property
    def is_plain(self) -> bool:
        """Whether all that is known of him is his name and what he has used."""
        bare = UserRecord(name=self.name, usage=self.record.usage, usage_at=self.record.usage_at)
        return self.record == bare and not self.stored.by_hour

    @property
    def held_for_share(self) -> float:
        """The weight he runs for each unit of his share, plus his lead: the least goes next."""
        return self.charged / self.share + self.lead

    def expect(self, command: tuple[str, ...], seconds: float) -> None:
        """Notes what tasks of a command take now; of too many commands the first is forgotten."""
        if command not in self.expected and len(self.expected) >= COMMANDS:
            del self.expected[next(iter(self.expected))]
        self.expected[command] = seconds

    def hand(self, weight: float, attempts: int) -> None:
        """Counts attempts that were handed out, each with this weight."""
        self.handed += weight * attempts / self.share

    def charge(self, weight: float, attempts: int, now: float) -> None:
        """Counts attempts that begin now to be charged at a worker, each with this weight."""
        if now > self._since:
            self._unfolded += self.charged * (now - self._since)
            self._since = now
        if not self.running:
            self._astir[self] = None
        self.running += attempts
        self.charged += weight * attempts
        self.latest_weight = weight

    def release(self, weight: float, now: float) -> None:
        """Counts an attempt that is charged no longer from now on."""
        if now > self._since:
            self._unfolded += self.charged * (now - self._since)
            self._since = now
        self.running -= 1
        # Nothing that runs is exactly nothing: sums of fractions would drift away from it.
        self.charged = self.charged - weight if self.running else 0.0

    def usage(self, now: float, half_life_seconds: float) -> float:
        """His recent usage, in weighted seconds; what was long ago counts less."""
        decayed = self._usage * 0.5 ** (max(0.0, now - self._usage_at) / half_life_seconds)
        return float(decayed + self._unfolded + self.charged * max(0.0, now - self._since))

    def fold(self, now: float, half_life_seconds: float) -> float:
        """Begins to forget what he has used up to now; returns his usage."""
        self.served += self._unfolded + self.charged * max(0.0, now - self._since)
        self._usage = self.usage(now, half_life_seconds)
        self._usage_at = self._since = now
        self._unfolded = 0.0
        return self._usage

    def used_since_record(self, now: float, half_life_seconds: float) -> float:
        """The usage, in weighted seconds, that his record does not tell yet."""
        age = max(0.0, now - self.record.usage_at)
        told = self.record.usage * 0.5 ** (age / half_life_seconds)
        return float(self.usage(now, half_life_seconds) - told)

    def forget_usage(self, now: float) -> None:
        """Counts from nothing again."""
        self._usage = self._unfolded = 0.0
        self._usage_at = self._since = now

    def recorded(self, now: float, half_life_seconds: float) -> UserRecord:
        """His settings with his present usage, as they go to the store."""
        usage = self.usage(now, half_life_seconds)
        return msgspec.structs.replace(self.record, usage=usage, usage_at=now)


class Sharers:
    """All users, and the groups that some of them are in.

    Args:
        config: says how long usage and files count, and what a user may have stored.
        groups: what is set for groups, by name. When that changes, `bind` has to follow.

    Attributes:
        half_life_seconds: the time in which half of the usage is forgotten.
        stale: whether somebody came whose share was not found yet, or weights were set anew.
        settled: whether it is known what everybody has at workers (`Quota.settled`).
    """

    def __init__(self, config: Config, groups: Mapping[str, GroupRecord]) -> None:
        self.half_life_seconds = config.usage_half_life_seconds
        self._config = config
        self.stale = False
        self.settled = True
        self._users: dict[str, Sharer] = {}
        #: Those who have something, or wait for it, and some who had: most users have nothing.
        self._astir: dict[Sharer, None] = {}
        self._groups = groups
        self._came = 0
        self._weighed_at = 0.0
        self._handed = {True: 0.0, False: 0.0}

    def of(self, name: str) -> Sharer:
        """The user with this account."""
        found = self._users.get(name)
        if found is None:
            found = self._come(UserRecord(name=name))
        return found

    def _come(self, record: UserRecord) -> Sharer:
        found = self._users[record.name] = Sharer(record, self._config, self._astir)
        self._came += 1
        found.number = self._came
        self._limit(found)
        return found

    def _limit(self, sharer: Sharer) -> None:
        """Sets how much a user may have stored: as is set for him, or else for everybody."""
        of_all = self._config.max_stored_bytes
        sharer.stored.limit_bytes = limit_in_force(sharer.record.max_stored_bytes, of_all)

    def max_queued_bytes(self, account: str) -> int | None:
        """The size that the jobs of an account may have together; None for any size.

        Args:
            account: a user, or a pool whose guests they are.
        """
        known = self._users.get(account)
        limit = AS_FOR_ALL if known is None else known.record.max_queued_bytes
        return limit_in_force(limit, self._config.max_queued_bytes)

    def find(self, name: str) -> Sharer | None:
        """The user with this account; None if nothing is known of him."""
        return self._users.get(name)

    def restore(
        self,
        users: Iterable[UserRecord],
        stored: Iterable[StoredRecord],
    ) -> None:
        """Sets what is durable, all at once: each `put` walks over all users."""
        for user in users:
            self._come(user)
        by_owner: dict[str, list[tuple[int, int]]] = {}
        for each in stored:
            by_owner.setdefault(each.owner, []).append((each.hour, each.size_bytes))
        for owner, hours in by_owner.items():
            self.of(owner).stored.restore(hours)
        self.bind()

    def put(self, record: UserRecord) -> Sharer:
        """Sets what holds for a user; his usage stays as it is known here.

        Quotas count from nothing then: `attempts.recounting` has to follow.
        """
        found = self._users.get(record.name)
        if found is None:
            found = self._come(record)
        found.record = record
        self._limit(found)
        self.bind()
        return found

    def bind(self) -> None:
        """Gives everybody the bounds that hold for him now, with nothing counted, as `put` does."""
        self.stale = True
        of_groups = {
            group.name: Quota(f"group {group.name}", group.max_running, group.limits)
            for group in self._groups.values()
        }
        for sharer in self._users.values():
            record = sharer.record
            own = Quota(f"user {record.name}", record.max_running, record.limits)
            both = (own, of_groups.get(record.group))
            sharer.quotas = tuple(quota for quota in both if quota)
            for quota in sharer.quotas:
                quota.settled = self.settled

    def settle(self) -> list[Quota]:
        """Notes that everybody's holdings at workers are known; returns the quotas it settles."""
        if self.settled:
            return []
        self.settled = True
        bounded = (quota for sharer in self._users.values() for quota in sharer.quotas)
        found = list(dict.fromkeys(bounded))
        for quota in found:
            quota.settled = True
        return found

    def members(self, group: str) -> list[Sharer]:
        """The users who share the weight and the bounds of a group."""
        return [sharer for sharer in self._users.values() if sharer.record.group == group]

    def group(self, name: str) -> GroupRecord:
        """The settings of a group; the defaults if nothing was set for it."""
        return self._groups.get(name) or GroupRecord(name=name)

    @property
    def too_many(self) -> bool:
        """Whether some may have to be forgotten."""
        return len(self._users) > self._config.most_idle_users

    def forget_idle(self, with_jobs: Collection[Sharer], now: float) -> list[Sharer]:
        """Forgets the surplus of those who have nothing, the least used first, and returns them.

        Args:
            with_jobs: everybody who has a job; they have something.
        """
        idle = [
            sharer
            for sharer in self._users.values()
            if sharer not in with_jobs and not sharer.is_active and sharer.is_plain
        ]
        idle.sort(key=lambda sharer: sharer.usage(now, self.half_life_seconds))
        forgotten = idle[: max(0, len(idle) - self._config.most_idle_users)]
        for sharer in forgotten:
            del self._users[sharer.name]
            self._astir.pop(sharer, None)
        return forgotten

    def welcome(self, sharer: Sharer) -> None:
        """Lets a user in who had nothing, and waits for something now.

        He begins a little behind those who have something, so that among equals it is his turn.
        """
        self.stale = True
        others = [
            other
            for other in self._astir
            if other.is_active and other is not sharer and other.at_home is sharer.at_home
        ]
        self._astir[sharer] = None
        running = [other.handed for other in others if other.running]
        if running:
            least = min(running) - COSTLESS / sharer.share
        else:
            least = min([other.handed for other in others], default=0.0)
        sharer.handed = max(sharer.handed, least)
        sharer.ahead_seconds = sharer.lead = sharer.served = 0.0
        sharer.passed_over_seconds = 0.0

    def first_end(self) -> float | None:
        """The time when the oldest of anybody's stored files no longer count; None for none."""
        ends = (sharer.stored.first_end() for sharer in self._users.values())
        return min((end for end in ends if end is not None), default=None)

    def users(self) -> list[Sharer]:
        """Everybody, in the order in which they came."""
        return list(self._users.values())

    def groups(self) -> list[GroupRecord]:
        """Every group of which something was set, or that has a user."""
        named = {sharer.record.group for sharer in self._users.values()} - {""}
        return [self.group(name) for name in sorted(named | self._groups.keys())]

    def weigh(self, now: float) -> None:
        """Finds everybody's share anew, once a round or if that is stale.

        Guests share among themselves what the pool's own leave: what they use tilts no other share.
        """
        if now - self._weighed_at < ROUND_SECONDS and not self.stale:
            return
        passed_seconds = now - self._weighed_at
        self._weighed_at, self.stale = now, False
        active = self._active()
        for at_home in (True, False):
            alike = [sharer for sharer in active if sharer.at_home is at_home]
            if alike:
                self._weigh(alike, now)
                self._find_leads(alike, passed_seconds, at_home=at_home)
            else:
                self._handed[at_home] = 0.0

    def looks_at(self, sharer: Sharer) -> bool:
        """Whether a user is among those who may have something."""
        return sharer in self._astir

    def _active(self) -> list[Sharer]:
        """Everybody who has something, or waits for it, in the order in which they came."""
        active = [sharer for sharer in self._astir if sharer.running > 0 or sharer.turns > 0]
        if len(active) < len(self._astir):
            self._astir.clear()
            self._astir.update(dict.fromkeys(active))
        active.sort(key=_NUMBER)
        return active

    def _weigh(self, active: list[Sharer], now: float) -> None:
        usages = [sharer.fold(now, self.half_life_seconds) for sharer in active]
        weights = self._weights(active)
        average = sum(usages, 0.0) / sum(weights, 0.0)
        for sharer, weight, usage in zip(active, weights, usages, strict=True):
            tilt = average * weight / usage if usage else MOST_TILT
            if tilt > MOST_TILT:
                tilt = MOST_TILT
            elif tilt < LEAST_TILT:
                tilt = LEAST_TILT
            sharer.share = weight * tilt

    def _find_leads(
        self, active: Sequence[Sharer], passed_seconds: float, *, at_home: bool
    ) -> None:
        """Finds by how much everybody is ahead of his share, by what he ran since the last round.

        Of three processors two users with equal shares cannot have one and a half each. But they
        can by turns.
        """
        handed = sum([sharer.handed for sharer in active], 0.0)
        before, self._handed[at_home] = self._handed[at_home], handed
        for sharer in active:
            if sharer.served or sharer.ahead_seconds:
                sharer.passed_over_seconds = 0.0
            elif handed != before:
                sharer.passed_over_seconds += passed_seconds
        # A user who comes first, and got nothing while others did, wants what nobody could give.
        active = [one for one in active if one.passed_over_seconds < IN_VAIN_SECONDS]
        served = sum([sharer.served for sharer in active], 0.0)
        if not served or not passed_seconds:
            return
        average = served / sum([sharer.share for sharer in active], 0.0) / passed_seconds
        in_line: list[Sharer] = []
        behind: float | None = None
        for sharer in active:
            his = average * sharer.share * passed_seconds
            if sharer.served <= his + sharer.latest_weight * passed_seconds:
                sharer.ahead_seconds += passed_seconds * sharer.served / his
                in_line.append(sharer)
                if sharer.turns and (behind is None or sharer.ahead_seconds < behind):
                    behind = sharer.ahead_seconds
            # Else he has more than one task too many, from a time when nobody else wanted more.
            sharer.served = 0.0
        if behind is None:  # nobody of them waits
            behind = passed_seconds
        for sharer in in_line:
            ahead_seconds = sharer.ahead_seconds - behind
            if ahead_seconds < 0.0:
                ahead_seconds = 0.0
            elif ahead_seconds > MOST_AHEAD_SECONDS:
                ahead_seconds = MOST_AHEAD_SECONDS
            sharer.ahead_seconds = ahead_seconds
        for sharer in active:
            sharer.lead = sharer.ahead_seconds / HORIZON_SECONDS * average

    def _weights(self, active: Sequence[Sharer]) -> list[float]:
        """Weights of users; those of one group share the weight of that group."""
        records = [sharer.record for sharer in active]
        if not any([record.group for record in records]):
            return [record.weight for record in records]
        together: dict[str, float] = {}
        for record in records:
            together[record.group] = together.get(record.group, 0.0) + record.weight
        return [
            record.weight * self.group(record.group).weight / together[record.group]
            if record.group
            else record.weight
            for record in records
        ]
