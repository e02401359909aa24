"""The wishes of users of a small world: jobs of every kind, and second thoughts about them."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random

import msgspec

from kestrel_worlds.truth import KINDS
from kestrelctl.core.model.job.after import IfParentFails, WantedEnd
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec, OnWorkerLost
from kestrelctl.core.model.job.stage import COMMANDED, TAG, Stage
from kestrelctl.core.model.share_change import ShareChange
from kestrelctl.core.model.worker.ad import AssetUnit, WorkerAd
from kestrelctl.core.model.worker.assets import GPUS

MEBIBYTE = 1 << 20
#: Number of tasks of a job -> what each of them asks for; not drawn, so that the other choices stay
#: those of the seed.
_GPUS_OF: dict[int, dict[str, float]] = {3: {GPUS: 0.5}, 8: {GPUS: 1.0}}

#: The same for what the whole pool has.
_TOKENS_OF: dict[int, dict[str, float]] = {1: {"seats": 2.0}, 20: {"seats": 1.0}}
#: The tokens that there are at the end: any task finds enough.
LAST_SEATS = 3

#: Tasks that fail with less memory than this fail for want of it.
MOST_WANTED_BYTES = 300 * MEBIBYTE
#: Tags that no machine has.
NOWHERE = ("abacus",)

#: An asset of unknown capacity, and the status with which tasks say that there is no more of it.
DB, NO_MORE_STATUS = "db", 75

#: The owners of jobs in a world, the first ones of these; the same for worlds with more; and the
#: groups that they may be in.
OWNERS = ("ada", "bob", "eve")
MANY_OWNERS = (*OWNERS, "joe", "kim")
GROUPS = ("physics", "biology")


class Submission(msgspec.Struct, frozen=True):
    """A job to be handed in, and what its owner does some time after it was acknowledged."""

    at_seconds: float  #: after the world's beginning
    spec: JobSpec
    owner: str = OWNERS[0]
    cancel_after_seconds: float | None = None
    cancel_tasks: tuple[int, ...] = ()  #: only these, instead of all
    retry_after_seconds: float | None = None
    hold_after_seconds: float | None = None
    release_after_seconds: float | None = None
    #: The earlier job of the same owner that it waits for, by its place among his.
    after_plan: int | None = None
    after_end: WantedEnd = WantedEnd.OK
    #: The same for a job for whose tasks its tasks wait, one for one: both have as many.
    each_plan: int | None = None


class PolicyChange(msgspec.Struct, frozen=True):
    """A consumption policy, put in force some time after the world's beginning."""

    at_seconds: float
    name: str
    workers: str
    text: str


class TokenChange(msgspec.Struct, frozen=True):
    """The tokens of the pool from some time after the world's beginning on; 0 takes them away."""

    at_seconds: float
    name: str
    total: int


class ShareSetting(msgspec.Struct, frozen=True):
    """A change by an admin for an owner or a group, some time after the world's beginning.

    Attributes:
        name: name of the owner, or of the group if one of `GROUPS` has this name.
        group: the group that the owner is in from then on; empty for none, None for no change.
    """

    at_seconds: float
    name: str
    change: ShareChange
    group: str | None = None


#: A task that fits a machine at all fits it with these, and no machine is oversubscribed.
_POLICIES = (
    "ConsumptionCpus = MAX({TARGET.RequestCpus, Cpus})",
    "ConsumptionCpus = MAX({TARGET.RequestCpus, 1})",
    "ConsumptionMemory = TARGET.RequestMemory > Memory ? TARGET.RequestMemory : "
    "MIN({Memory, quantize(TARGET.RequestMemory, {256})})\nSlotWeight = floor(Memory / 256)",
)


def some_policies(random: Random, within_seconds: float) -> list[PolicyChange]:
    """Draws policies for some of the machines, set and set anew while the world goes on."""
    return [
        PolicyChange(
            random.uniform(0.0, within_seconds),
            random.choice("abc"),
            random.choice(("true", "Cpus >= 2", 'member("gpu", Tags)', "Memory > 0")),
            random.choice(_POLICIES),
        )
        for _ in range(random.choice((0, 0, 1, 3, 6)))
    ]


def some_tokens(random: Random, within_seconds: float) -> list[TokenChange]:
    """Draws the tokens of the pool while the world goes on; in the end there are enough."""
    changes = [
        TokenChange(random.uniform(0.0, within_seconds), "seats", random.choice((0, 1, 2, 3, 5, 8)))
        for _ in range(random.choice((0, 2, 4, 8)))
    ]
    changes.sort(key=lambda change: change.at_seconds)
    return [
        TokenChange(0.0, "seats", 3),
        *changes,
        TokenChange(within_seconds + 1.0, "seats", LAST_SEATS),
    ]


def some_shares(random: Random, within_seconds: float) -> list[ShareSetting]:
    """Draws weights, groups and quotas while the world goes on; in the end nothing is bounded."""
    settings = [
        ShareSetting(
            random.uniform(0.0, within_seconds),
            name,
            ShareChange(
                weight=random.choice((0.5, 1.0, 3.0)),
                max_running=random.choice((None, 0, 1, 3, 8)),
                limits={"cpus": random.choice((None, None, 0.5, 2.0, 6.0))},
            ),
            None if name in GROUPS else random.choice((None, "", *GROUPS)),
        )
        for name in (*OWNERS, *GROUPS)
        for _ in range(random.choice((0, 0, 1, 3)))
    ]
    settings.sort(key=lambda setting: setting.at_seconds)
    anything = ShareChange(max_running=None, limits={"cpus": None})
    last = {
        setting.name: ShareSetting(within_seconds + 1.0, setting.name, anything)
        for setting in settings
    }
    groups = [ShareSetting(0.0, name, ShareChange()) for name in GROUPS if settings]
    return [*groups, *settings, *last.values()]


def with_spans(ads: list[WorkerAd], submissions: list[Submission]) -> list[Submission]:
    """Gives jobs of few tasks members that run together.

    They ask for little, so that half of the machines can run one, whatever policies say. Nothing is
    left to chance: all else stays that of the seed.
    """
    return [
        msgspec.structs.replace(each, spec=_spanning(each.spec), cancel_tasks=())
        if 1 < each.spec.count <= len(ads) / 2 and each.spec.requires != NOWHERE
        else each
        for each in submissions
    ]


def _spanning(spec: JobSpec) -> JobSpec:
    return msgspec.structs.replace(
        spec,
        span=spec.count,
        stop_after=None,
        request={"cpus": min(1.0, spec.request["cpus"])},
        requires=(),
        requirements="",
        items=None,
        max_running=None,
        retry_memory_bytes=(),
    )


def with_unknown(
    random: Random, ads: list[WorkerAd], submissions: list[Submission]
) -> tuple[list[WorkerAd], tuple[dict[str, float], ...], list[Submission]]:
    """Gives some of the machines and jobs an asset of unknown capacity.

    Returns:
        The machines, how much each of them really has of it, and the jobs. The first machine has
        enough for any task, others perhaps nothing.
    """
    if random.random() < 0.5:
        return ads, (), submissions
    hidden: list[dict[str, float]] = [{DB: random.choice((1.0, 1.0, 2.0))}]
    hidden += [random.choice(({}, {DB: random.choice((0.0, 1.0, 1.0, 2.0))})) for _ in ads[1:]]
    return (
        [
            msgspec.structs.replace(ad, unknown={DB: NO_MORE_STATUS}) if there else ad
            for ad, there in zip(ads, hidden, strict=True)
        ],
        tuple(hidden),
        [_with_some(random, each) for each in submissions],
    )


def _with_some(random: Random, submission: Submission) -> Submission:
    if random.random() < 0.4:
        return submission
    request = submission.spec.request | {DB: random.choice((0.5, 1.0, 1.0))}
    spec = msgspec.structs.replace(submission.spec, request=request)
    return msgspec.structs.replace(submission, spec=spec)


def with_owners(random: Random, submissions: list[Submission]) -> list[Submission]:
    """Gives the jobs to one or to several owners."""
    owners = OWNERS[: random.choice((1, 2, 3, 3))]
    return [msgspec.structs.replace(each, owner=random.choice(owners)) for each in submissions]


def with_stages(
    random: Random, ads: list[WorkerAd], submissions: list[Submission]
) -> tuple[list[WorkerAd], list[Submission]]:
    """Gives some of the jobs stages, which most machines run, among them the first."""
    machines = [
        ad if place and random.random() < 0.2 else msgspec.structs.replace(ad, tags=(*ad.tags, TAG))
        for place, ad in enumerate(ads)
    ]
    return machines, [_staged(random, submission) for submission in submissions]


def _staged(random: Random, submission: Submission) -> Submission:
    if submission.spec.span > 1 or random.random() < 0.65:
        return submission
    stages = tuple(
        Stage(name=name, argv=("stage", "{}"), tries=random.choice((1, 1, 3)))
        for name in COMMANDED
        if random.random() < 0.6
    )
    spec = msgspec.structs.replace(
        submission.spec, program=msgspec.structs.replace(submission.spec.program, stages=stages)
    )
    return msgspec.structs.replace(submission, spec=spec)


def with_parents(random: Random, submissions: list[Submission]) -> list[Submission]:
    """Lets some of the jobs wait for another of their owner; some run whatever comes of that."""
    places: Counter[str] = Counter()
    found = []
    for each in submissions:
        place = places[each.owner]
        places[each.owner] += 1
        if place and random.random() < 0.3:
            otherwise = random.choice((IfParentFails.CANCEL, IfParentFails.RUN))
            each = msgspec.structs.replace(
                each,
                spec=msgspec.structs.replace(each.spec, if_parent_fails=otherwise),
                after_plan=random.randrange(place),
                after_end=random.choice(tuple(WantedEnd)),
            )
        found.append(each)
    return found


def with_pairs(random: Random, submissions: list[Submission]) -> list[Submission]:
    """Lets the tasks of some jobs wait for those of another of their owner, one for one."""
    earlier: defaultdict[str, list[JobSpec]] = defaultdict(list)
    found = []
    for each in submissions:
        known = earlier[each.owner]
        place = random.randrange(len(known)) if known and random.random() < 0.3 else None
        if place is not None and each.after_plan is None and each.spec.span == 1:
            count = known[place].count
            spec = msgspec.structs.replace(
                each.spec,
                count=count,
                items=None,
                if_parent_fails=random.choice((IfParentFails.CANCEL, IfParentFails.RUN)),
            )
            each = msgspec.structs.replace(
                each,
                spec=spec,
                each_plan=place,
                cancel_tasks=tuple(index for index in each.cancel_tasks if index < count),
            )
        known.append(each.spec)
        found.append(each)
    return found


def some_ads(random: Random, n: int) -> list[WorkerAd]:
    """Draws machines of a few sorts; the first can run any task that `some_jobs` makes."""
    ads = [_ad(_assets(4, 1024 * MEBIBYTE), ("gpu", "linux"))]
    while len(ads) < n:
        tags = tuple(tag for tag in ("gpu", "linux") if random.random() < 0.5)
        memory_bytes = random.choice((0, 256, 1024)) * MEBIBYTE
        place = len(ads)
        ads.append(
            msgspec.structs.replace(
                _ad(_assets(random.choice((1, 1, 2, 4)), memory_bytes), tags),
                attributes={"rack": place % 3} if place % 2 else {},
                start="JobPrio < 200 || RequestCpus <= 1" if place % 4 == 3 else "",
            )
        )
    return ads


def _ad(assets: dict[str, float], tags: tuple[str, ...]) -> WorkerAd:
    """Makes an ad, with two GPUs if it has the tag for them."""
    if "gpu" not in tags:
        return WorkerAd(assets=assets, tags=tags)
    units: dict[str, tuple[AssetUnit, ...]] = {GPUS: (AssetUnit("0"), AssetUnit("1"))}
    return WorkerAd(assets={**assets, GPUS: 2.0}, units=units, tags=tags)


def _assets(cpus: float, memory_bytes: int) -> dict[str, float]:
    return {"cpus": cpus} | ({"memory": memory_bytes} if memory_bytes else {})


def some_jobs(random: Random, tasks: int, within_seconds: float) -> list[Submission]:
    """Draws jobs with this many tasks together, handed in over a span of time."""
    found: list[Submission] = []
    while tasks > 0:
        count = min(tasks, random.choice((1, 3, 8, 20, 40)))
        tasks -= count
        found.append(_one(random, count, within_seconds))
    return found


def with_holds(random: Random, submissions: list[Submission]) -> list[Submission]:
    """Lets some of the jobs be held for a while, by their owner or by the pool."""
    return [_held_for_a_while(random, submission) for submission in submissions]


def _held_for_a_while(random: Random, submission: Submission) -> Submission:
    held = random.random() < 0.15
    spec = msgspec.structs.replace(
        submission.spec,
        held=held,
        hold_after=random.randint(1, 4) if random.random() < 0.3 else None,
        stop_after=2 if submission.spec.max_running == 2 else None,
    )
    begins = None if held else random.uniform(0.0, 8.0) if random.random() < 0.3 else None
    ends = (begins or 0.0) + random.uniform(0.0, 10.0)
    return msgspec.structs.replace(
        submission,
        spec=spec,
        hold_after_seconds=begins,
        release_after_seconds=ends if held or begins is not None else None,
    )


#: Ranks whose value is not a number somewhere, or that have none: for a text that ends within a
#: letter HTCondor's library gives no value.
_RANKS = (
    "substr(Site, 0, 2)",
    "substr(Site, 1, 1)",
    "Site",
    "1 / 0",
    "Rack * 1.5e300 * 1e300",
    "Rack ?: undefined",
)
_REQUIREMENTS = (
    'substr(Site ?: "Bonn", 0, 2) != "Bo" || TARGET.Cpus > 0',
    "isError(1 / 0) && size({Rack, Site}) == 2",
    'substr(Site ?: "é", 0, 2)',
    r'join(",", {"\303", Site ?: "\274"}) =!= undefined',
)


def with_expressions(
    random: Random, ads: list[WorkerAd], submissions: list[Submission]
) -> tuple[list[WorkerAd], list[Submission]]:
    """Puts machines on two sites, and gives some of the jobs expressions of every kind.

    These may have no value at some machine, so that the pool holds the job: in the end its owner
    cancels it.
    """
    if random.random() < 0.5:
        return ads, submissions
    sites = {n: random.choice(("München", "München", "Bonn", "")) for n in range(len(ads))}
    ads = [
        msgspec.structs.replace(ad, attributes={**ad.attributes, "site": sites[n]})
        if sites[n]
        else ad
        for n, ad in enumerate(ads)
    ]
    return ads, [_with_expressions(random, submission) for submission in submissions]


def _with_expressions(random: Random, submission: Submission) -> Submission:
    # The retry of a parent brings its children back, after their owner has cancelled them.
    has_parent = submission.after_plan is not None or submission.each_plan is not None
    if has_parent or random.random() < 0.7:
        return submission
    spec = msgspec.structs.replace(submission.spec, rank=random.choice(_RANKS))
    if random.random() < 0.5:
        spec = msgspec.structs.replace(spec, requirements=random.choice(_REQUIREMENTS))
    return msgspec.structs.replace(
        submission,
        spec=spec,
        cancel_after_seconds=random.uniform(0.0, 20.0),
        cancel_tasks=(),
        retry_after_seconds=None,
    )


def _one(random: Random, count: int, within_seconds: float) -> Submission:
    def sometimes(chance: float) -> bool:
        return random.random() < chance

    kind = random.choice(KINDS)
    never_runs = sometimes(0.05)
    spec = JobSpec(
        program=Program(argv=("task", "{}")),
        name=kind,
        count=count,
        items=tuple(f"line {i}" for i in range(count)) if sometimes(0.2) else None,
        request=_assets(
            random.choice((0.5, 1, 1, 1, 2)), random.choice((0, 0, 0, 100, 200)) * MEBIBYTE
        )
        | _GPUS_OF.get(count, {})
        | _TOKENS_OF.get(count, {}),
        requires=NOWHERE if never_runs else ("gpu",) if sometimes(0.2) else (),
        priority=random.choice((50, 100, 100, 200)),
        max_running=random.randint(1, 4) if sometimes(0.2) else None,
        max_failures=random.choice((1, 1, 2, 4)),
        max_losses=random.choice((1, 2, 5)),
        on_worker_lost=OnWorkerLost.WAIT if sometimes(0.3) else OnWorkerLost.REQUEUE,
    )
    # No choices of their own, so that the other choices stay those of the seed.
    if spec.priority == 200:
        text = "Memory >= RequestMemory && TARGET.Rack =!= 1"
        spec = msgspec.structs.replace(spec, requirements=text)
    elif spec.priority == 50:
        spec = msgspec.structs.replace(spec, rank="TARGET.Cpus + (TARGET.Rack ?: 5)")
    if spec.max_failures == 4:
        # No choice of its own, so that the other choices stay those of the seed.
        rules = {"no_retry_on": ((1, 1),)} if spec.priority == 200 else {"retry_on": ((1, 1),)}
        spec = msgspec.structs.replace(spec, **rules, max_backoff_seconds=3.0)
    if spec.request.get("memory"):
        steps = (250 * MEBIBYTE, MOST_WANTED_BYTES)
        spec = msgspec.structs.replace(spec, retry_memory_bytes=steps)
    if spec.priority == 50 and spec.max_losses == 1:
        spec = msgspec.structs.replace(spec, deadline_seconds=15.0)
    cancelled = never_runs or sometimes(0.2)
    return Submission(
        at_seconds=random.uniform(0.0, within_seconds) if sometimes(0.7) else 0.0,
        spec=spec,
        cancel_after_seconds=random.uniform(0.0, 10.0) if cancelled else None,
        # No choice of its own, so that the other choices stay those of the seed.
        cancel_tasks=tuple(range(0, count, 3)) if spec.priority == 100 and not never_runs else (),
        retry_after_seconds=random.uniform(0.1, 20.0)
        if sometimes(0.3) and not never_runs
        else None,
    )
