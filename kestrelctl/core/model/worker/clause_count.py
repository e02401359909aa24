"""The number of workers that a clause of an expression leaves."""

from __future__ import annotations

import msgspec


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
