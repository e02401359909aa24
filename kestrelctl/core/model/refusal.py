"""The reasons why a task does not run, and the ladder that orders them (`CLOSENESS`).

A refusal is a value. `job explain`, the metrics, the log, and whoever reads what a plan left unmet
show the same. An option that holds jobs back gives its own name as the reason
(`core.features.table.GATES`): those of which nothing else speaks are not listed here.
"""

from __future__ import annotations

import enum

import msgspec


class Reason(enum.StrEnum):
    """A reason why a task does not run on a worker, or does not run at all just now."""

    STAYS_HOME = "stays-home"
    UNWILLING = "unwilling"
    MISSING_TAGS = "missing-tags"
    MISSING_ASSET = "missing-asset"
    POLICY = "policy"
    TOO_SMALL = "too-small"
    ERROR = "error"
    UNDEFINED = "undefined"
    REQUIREMENTS = "requirements"
    START = "start"
    LIFETIME = "lifetime"
    BUSY = "busy"
    RESERVED = "reserved"
    OFFLINE = "offline"
    UNHEARD = "unheard"
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    NO_WORKERS = "no-workers"
    HELD = "held"
    PARENTS = "parents"
    TOGETHER = "together"
    TOKENS = "tokens"
    QUOTA = "quota"
    MAX_STORED = "max-stored"
    BACKOFF = "backoff"
    MORE_MEMORY = "more-memory"
    ALL_STARTED = "all-started"
    CANCELLING = "cancelling"
    RECOVERING = "recovering"
    NOT_STORED = "not-stored"
    STORE_FAILING = "store-failing"


#: Nothing but another worker or another ad can make these go away.
NEVER_FITS = (
    Reason.STAYS_HOME,
    Reason.UNWILLING,
    Reason.MISSING_TAGS,
    Reason.MISSING_ASSET,
    Reason.POLICY,
    Reason.TOO_SMALL,
    Reason.ERROR,
    Reason.UNDEFINED,
    Reason.REQUIREMENTS,
    Reason.START,
    Reason.LIFETIME,
)


_OF_EXPRESSIONS = (Reason.REQUIREMENTS, Reason.START, Reason.UNDEFINED)


class Refusal(msgspec.Struct, frozen=True):
    """One reason, with what was wanted and what there is (text for people; may be empty).

    Attributes:
        reason: one of `Reason`, or the name of an option that holds its jobs back.
    """

    reason: str
    wanted: str = ""
    found: str = ""
    #: From 0 to 1: orders refusals by how close they are to a match.
    closeness: float = 0.0
    #: Whether the job cannot be held against workers at all, so that it is put on hold.
    puts_on_hold: bool = False

    @property
    def may_pass(self) -> bool:
        """Whether it may pass by itself, because what is wanted asks for a value that changes."""
        if self.reason not in _OF_EXPRESSIONS:
            return False
        from kestrelctl.core.model.worker.matching_ads import PROPERTY_PREFIX  # commands are lean

        return PROPERTY_PREFIX.lower() in self.wanted.lower()


#: Bounds of the closeness of each reason that a worker can give. The share of what was asked for
#: that is there decides within them.
CLOSENESS: dict[Reason, tuple[float, float]] = {
    Reason.STAYS_HOME: (0.0, 0.0),
    Reason.UNWILLING: (0.0, 0.0),
    Reason.MISSING_TAGS: (0.0, 0.3),
    Reason.MISSING_ASSET: (0.3, 0.3),
    Reason.POLICY: (0.3, 0.3),
    Reason.TOO_SMALL: (0.3, 0.5),
    Reason.ERROR: (0.5, 0.5),
    Reason.UNDEFINED: (0.52, 0.52),
    Reason.REQUIREMENTS: (0.53, 0.57),
    Reason.START: (0.58, 0.58),
    Reason.LIFETIME: (0.6, 0.65),
    Reason.OFFLINE: (0.65, 0.65),
    Reason.UNHEARD: (0.7, 0.7),
    Reason.DRAINING: (0.8, 0.8),
    Reason.QUARANTINED: (0.85, 0.85),
    Reason.RESERVED: (0.87, 0.87),
    Reason.BUSY: (0.9, 1.0),
}


#: The closeness of a worker that lacks only tags that the job could do without (`model.own_tags`):
#: among the reasons that never fit, only the time that a worker stays is closer.
BUT_FOR_OWN_TAGS = 0.59


def refuse(
    reason: Reason,
    *,
    wanted: str = "",
    found: str = "",
    share: float = 0.0,
    puts_on_hold: bool = False,
) -> Refusal:
    """Makes a refusal by a worker.

    Args:
        share: the share of what was asked for that is there, 0 to 1.
        puts_on_hold: see `Refusal`.
    """
    low, high = CLOSENESS[reason]
    return Refusal(reason, wanted, found, low + (high - low) * share, puts_on_hold)


class ClauseCount(msgspec.Struct, frozen=True, omit_defaults=True):
    """The numbers of workers that one clause leaves.

    Attributes:
        by: `requirements` of the job, or `start` of workers.
        of: how many workers it is asked of.
        alone: of how many of them it is true by itself.
        so_far: of how many it is true together with all clauses before it.
        undefined: of how many it is neither true nor false, because an attribute is not there.
        closest: a worker of which most clauses are true.
        fails: whether this is the first that is not true of that one.
        values: of the attributes in the clause, of both sides, at that one.
    """

    by: str
    clause: str
    of: int
    alone: int
    so_far: int
    undefined: int = 0
    closest: str = ""
    fails: bool = False
    values: str = ""
