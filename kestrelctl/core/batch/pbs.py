"""PBS Professional and OpenPBS: `qstat` and `pbsnodes`, which print JSON (qstat(1B), pbsnodes(8B)).

A feature is a boolean resource: `-l select=1:ncpus=4:mpi=True`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from kestrelctl.core.batch.queue_facts import (
    ALLOCATED,
    IDLE,
    PENDING,
    RUNNING,
    BatchJobs,
    BatchNode,
    UnreadableOutput,
)

JOBS = ("qstat", "-f", "-F", "json")
NODES = ("pbsnodes", "-a", "-F", "json")

_WAITS, _RUNS = {"Q"}, {"R", "E", "S", "U"}
_ARRAY_PHASES = {"Queued": PENDING, "Running": RUNNING, "Exiting": RUNNING}
_ALLOCATED = {"job-busy", "job-exclusive", "resv-exclusive"}
_ASKED = re.compile(r"([A-Za-z]\w*)=(\w+)")


def read_jobs(text: str) -> list[BatchJobs]:
    """Reads what `JOBS` printed.

    An array is one job there, which says how many of its tasks are in which state.

    Raises:
        UnreadableOutput: it is something else.
    """
    found = []
    for job in _table(text, "Jobs"):
        wants = _dict(job.get("Resource_List"))
        features = {name.lower() for name, value in wants.items() if _is_true(value)}
        features |= {
            name.lower()
            for name, value in _ASKED.findall(str(wants.get("select", "")))
            if _is_true(value)
        }
        nodes = wants.get("nodect", 1)
        queue = frozenset([str(job.get("queue", ""))])
        for phase, count in _phases(job):
            found.append(
                BatchJobs(
                    phase,
                    count,
                    nodes if isinstance(nodes, int) else 1,
                    frozenset(features),
                    queue,
                )
            )
    return found


def _phases(job: dict[str, Any]) -> Iterator[tuple[str, int]]:
    state = job.get("job_state")
    counts = job.get("array_state_count")
    if isinstance(counts, str) and state in ("Q", "B"):
        for word in counts.split():
            name, _, count = word.partition(":")
            if name in _ARRAY_PHASES and count.isdecimal() and int(count):
                yield _ARRAY_PHASES[name], int(count)
    elif state in _WAITS or state in _RUNS:
        yield (PENDING if state in _WAITS else RUNNING), 1


def read_nodes(text: str) -> list[BatchNode]:
    """Reads what `NODES` printed.

    Raises:
        UnreadableOutput: it is something else.
    """
    found = []
    for node in _table(text, "nodes"):
        has = _dict(node.get("resources_available"))
        states = {state.strip() for state in str(node.get("state", "")).split(",")}
        phase = ""
        if states <= {"free", *_ALLOCATED}:
            phase = ALLOCATED if states & _ALLOCATED or node.get("jobs") else IDLE
        found.append(
            BatchNode(
                str(has.get("vnode", node.get("Mom", ""))),
                phase,
                frozenset(name.lower() for name, value in has.items() if _is_true(value)),
                frozenset([str(node["queue"])]) if "queue" in node else frozenset(),
            )
        )
    return found


def _is_true(value: object) -> bool:
    return str(value).lower() in ("true", "t", "yes", "y")


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _table(text: str, key: str) -> list[dict[str, Any]]:
    """The jobs or nodes; none if the document has none."""
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise UnreadableOutput(f"it is no object of JSON: {error}") from None
    if "pbs_version" not in found:
        raise UnreadableOutput("it is not of PBS: it has no pbs_version")
    return [_dict(each) for each in _dict(found.get(key)).values()]
