"""Jobs that depend on jobs, as users send them and are shown them."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.after import After
from kestrelctl.core.model.spec import JobSpec
from kestrelctl.protocol.reply import Reply


class GraphJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job of several that are submitted as one.

    Attributes:
        after: the jobs among these that it waits for, by their places, from 0; all come before it.
            Jobs that are there already are in the `after` of its spec.
        after_each: the same of the job whose tasks its tasks wait for, one for one; None for none.
    """

    spec: JobSpec
    after: tuple[After, ...] = ()
    after_each: int | None = None


class GraphSubmitted(Reply, frozen=True, kw_only=True, tag="graph_submitted"):
    """All of these jobs are durable.

    Attributes:
        job_id: of the first; those of the others follow, in the order in which they were sent.
        jobs: how many.
        tasks: of all of them.
        repeated: an earlier submission with the same key has made them.
    """

    job_id: int
    jobs: int
    tasks: int
    repeated: bool = False


class GraphNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job in a drawing.

    Attributes:
        name: or the beginning of its command, if it has none.
        state: as of `JobView`; `waiting` of an active one that waits for others.
        ended: tasks with a final state.
    """

    job_id: int
    name: str
    state: str
    tasks: int = 1
    ended: int = 0


class GraphEdge(msgspec.Struct, frozen=True, array_like=True):
    """A job, and others with ids in a row that it waits for, or did.

    Attributes:
        ending: how they must end: `ok`, `ended` or `failed`; or `each`, of a job whose tasks wait
            for the tasks of another, one for one.
    """

    child: int
    first: int
    last: int
    ending: str


class JobGraph(Reply, frozen=True, kw_only=True, tag="graph"):
    """Jobs, with all that they wait for and all that wait for them, directly or not.

    Attributes:
        nodes: in the order of their ids: parents before their children.
        edges: those between them; a range may name jobs that are forgotten.
        more: whether some jobs are left out, because they are too many.
    """

    nodes: list[GraphNode]
    edges: list[GraphEdge]
    more: bool = False
