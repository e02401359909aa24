"""The jobs that jobs wait for, in a store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kestrelctl.core.model.job.after import EACH, After
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.store.connection import TableConnection, TableReader

#: More than there can be: for no limit.
MOST_EDGES = 1 << 62


class Edge(NamedTuple):
    """A job, and others with ids in a row that it waits for.

    Attributes:
        ending: how all of these must end before it starts, a `WantedEnd`; or `EACH`.
    """

    child: int
    first: int
    last: int
    ending: str


def edges_of(child: int, spec: JobSpec) -> list[Edge]:
    """The edges to the jobs that a job waits for, in the order of their ids."""
    found = [Edge(child, each.first, each.last, each.ending.value) for each in spec.after]
    if spec.after_each:
        found.append(Edge(child, spec.after_each, spec.after_each, EACH))
    return sorted(found)


def put_edges(connection: TableConnection, child: int, spec: JobSpec) -> None:
    """Writes what a new job waits for."""
    connection.executemany(
        "INSERT INTO edges (child, first, last, ending) VALUES (?, ?, ?, ?)", edges_of(child, spec)
    )


def edges(
    connection: TableReader, ids: Sequence[int] | None, above: int, limit: int | None
) -> list[Edge]:
    """Implements `Store.edges`."""
    condition = "child > ?"
    values: list[int | str] = [above]
    if ids is not None:
        condition += " AND child IN (SELECT value FROM json_each(?))"
        values.append(json.dumps(list(ids)))
    rows = connection.execute(
        f"SELECT child, first, last, ending FROM edges WHERE {condition} ORDER BY child, first"
        " LIMIT ?",
        (*values, MOST_EDGES if limit is None else limit),
    )
    return [Edge(child, first, last, str(ending)) for child, first, last, ending in rows]


def ended_parents(connection: TableReader, waits: Iterable[tuple[After, ...]]) -> dict[int, str]:
    """The final states of the jobs that these name, as far as they have one."""
    found: dict[int, str] = {}
    for first, last in {(each.first, each.last) for after in set(waits) for each in after}:
        rows = connection.execute(
            "SELECT job_id, state FROM jobs WHERE job_id BETWEEN ? AND ? AND state <> 'active'",
            (first, last),
        )
        found.update((job_id, str(state)) for job_id, state in rows)
    return found
