"""Shapes: what jobs that match alike have in common, and which of them never leave the pool."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kestrelctl.core.model.files import outputs, parent_files, workdir
from kestrelctl.core.model.job import channel_rules, checkpoint, guest, task_environment
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.worker.assets import Amounts, Natural, amounts, natural, whole_uses
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.model.worker.matching_ads import Attributes, amounts_ad, in_lower_case
from kestrelctl.core.model.worker.own_tags import own_tags_of
from kestrelctl.core.model.worker.significance import Facts, attributes_of

if TYPE_CHECKING:
    from kestrelctl.core.model.job.spec import JobSpec


#: The tags of what a task cannot have at another pool, which lends its workers without them: a
#: directory of its user's choice, files of other tasks of his, a channel to him, checkpoints, a
#: shared file system, an environment of a class.
HOME_TAGS = frozenset(
    (
        guest.TAG,
        workdir.TAG,
        parent_files.TAG,
        channel_rules.TAG,
        checkpoint.TAG,
        outputs.FILE_TAG,
        *map(task_environment.tag_of, task_environment.KINDS),
    )
)


def stays_home(spec: JobSpec) -> bool:
    """Whether tasks of a job never go to a neighbour.

    Guests are not lent on: whoever lends a machine knows whose tasks run there, and no task travels
    in a circle. Copies of a service would hold what is lent for a while only, and members of one
    program must find each other, which they cannot from pool to pool.
    """
    return spec.stays or spec.guest is not None or spec.service or spec.span > 1


class Shape:
    """The request of such jobs: amounts of assets, tags, and what expressions say of both sides.

    One object for all jobs that ask alike.

    Attributes:
        request: what a worker must have.
        claim: a claim to that: attempts are charged it unless something else is said.
        tokens: what the pool must have free of its own.
        requires: tags in upper case, as in the original.
        asked: the request in natural units, as the first of the jobs had it. The others share it:
            ten thousand jobs need no ten thousand dictionaries.
        requirements, rank: expressions; empty for none.
        facts: what else expressions in force ask of such jobs.
        time_request_seconds: how long a worker has to stay; 0 for any. That depends on the worker,
            not on its class, and on the moment: `scheduling.offer` checks it.
        span: how many workers such jobs run on at once, all or none; 1 for any.
        stays: whether such jobs never go to a neighbour (`model.neighbour`).
        prepared: what `scheduling.judgement` keeps of it.
        bit: stands for it in sets of shapes, which are integers. The queue writes it.
    """

    __slots__ = (
        "asked",
        "bit",
        "claim",
        "facts",
        "prepared",
        "rank",
        "request",
        "requirements",
        "requires",
        "span",
        "stays",
        "time_request_seconds",
        "tokens",
    )

    def __init__(
        self,
        request: Amounts,
        requires: frozenset[str],
        asked: Natural | None = None,
        requirements: str = "",
        rank: str = "",
        facts: Facts = (),
        time_request_seconds: float = 0.0,
        tokens: Amounts | None = None,
        span: int = 1,
        *,
        stays: bool = False,
    ) -> None:
        self.requirements = requirements
        self.rank = rank
        self.facts = facts
        self.time_request_seconds = time_request_seconds
        self.span = span
        self.stays = stays
        self.prepared: object = None
        self.bit = 0
        self.request = request
        self.claim = Claim(request)
        self.tokens = tokens or {}
        self.requires = requires
        self.asked = natural(request) if asked is None else asked

    def without(self, tags: Collection[str]) -> Shape:
        """Returns the shape without some tags, which are in upper case."""
        return Shape(
            self.request,
            self.requires.difference(tags),
            self.asked,
            self.requirements,
            self.rank,
            self.facts,
            self.time_request_seconds,
            self.tokens,
            self.span,
            stays=self.stays,
        )

    def attributes(self) -> Attributes:
        """The ad of such jobs, as far as expressions in force ask, as `in_lower_case` has it."""
        asked = amounts_ad(natural(self.request | self.tokens), "Request")
        return attributes_of(self.facts) | in_lower_case(asked)


#: Two jobs have one shape if they agree in all this.
ShapeKey = tuple[
    tuple[tuple[str, int], ...],
    frozenset[str],
    str,
    str,
    Facts,
    float,
    tuple[tuple[str, int], ...],
    int,
    bool,
]


def shape_key(spec: JobSpec, facts: Facts = (), tokens: Collection[str] = ()) -> ShapeKey:
    """The key of a job's shape.

    Args:
        facts: what expressions in force ask of the job, beside what it asks for.
        tokens: assets that the pool has, and no worker. A task takes whole ones of these.
    """
    request = tuple(sorted(amounts(spec.request).items()))
    of_pool: tuple[tuple[str, int], ...] = ()
    if tokens:
        of_pool = tuple((name, whole_uses(n)) for name, n in request if name in tokens)
        request = tuple(entry for entry in request if entry[0] not in tokens)
    tags = frozenset([tag.upper() for tag in (*spec.requires, *own_tags_of(spec))])
    seconds = spec.time_request_seconds or 0.0
    stays = stays_home(spec)
    return request, tags, spec.requirements, spec.rank, facts, seconds, of_pool, spec.span, stays
