"""Slurm: `squeue` and `sinfo`, in formats of our own (squeue(1), sinfo(1), 22.05 and newer)."""

from __future__ import annotations

import re

from kestrelctl.core.batch.queue_facts import (
    ALLOCATED,
    IDLE,
    PENDING,
    RUNNING,
    BatchJobs,
    BatchNode,
    UnreadableOutput,
    merged,
)

#: Each task of an array by itself. A reason may have anything in it, so it comes last.
JOBS = ("squeue", "--noheader", "--array", "--format=%T;%D;%P;%f;%r")
#: A line for each node and each of its partitions.
NODES = ("sinfo", "--noheader", "--Node", "--format=%N;%T;%R;%b")

_RUNNING = {
    *("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED"),
    *("STAGE_OUT", "SIGNALING", "RESIZING"),
}
#: The reasons of jobs that would not wait if there were more nodes (squeue(1), "JOB REASON CODES").
_FOR_NODES = re.compile(
    "None|Resources|Priority|ReqNodeNotAvail|Nodes required for job are|NodeDown|PartitionConfig"
    "|BadConstraints"
)
#: sbatch(1), "--constraint".
_BETWEEN = re.compile(r"\*[0-9]+|[&|,()\[\]{}]")
_ALLOCATED = {"allocated", "mixed", "completing", "draining", "planned"}
#: Signs behind the state of a node that is up and keeps its jobs (sinfo(1), "NODE STATE CODES"): it
#: is planned for another job, completes one, is reserved, or boots or goes off when all have ended.
_STILL_UP = "-+$@!"


def read_jobs(text: str) -> list[BatchJobs]:
    """Reads what `JOBS` printed.

    Raises:
        UnreadableOutput: it is something else.
    """
    found = []
    for line in text.splitlines():
        state, nodes, partitions, features, reason = _fields(line, 5)
        if not nodes.isdecimal():
            raise UnreadableOutput(f"not a number of nodes: {nodes[:40]}")
        phase = RUNNING if state in _RUNNING else ""
        if state == "PENDING" and _FOR_NODES.match(reason):
            phase = PENDING
        if phase:
            found.append(
                BatchJobs(
                    phase, 1, int(nodes), _features(features), frozenset(partitions.split(","))
                )
            )
    return found


def read_nodes(text: str) -> list[BatchNode]:
    """Reads what `NODES` printed.

    Raises:
        UnreadableOutput: it is something else.
    """
    found = []
    for line in text.splitlines():
        name, state, partition, features = _fields(line, 4)
        # With another sign, or idle with any, it is switched off, boots, or does not answer.
        works = state.rstrip(_STILL_UP) in _ALLOCATED
        phase = IDLE if state == "idle" else ALLOCATED if works else ""
        found.append(BatchNode(name, phase, _features(features), frozenset([partition])))
    return merged(found)


def _fields(line: str, count: int) -> list[str]:
    fields = line.strip().split(";", count - 1)
    if len(fields) != count:
        raise UnreadableOutput(f"not {count} fields: {line[:80]}")
    return fields


def _features(text: str) -> frozenset[str]:
    """The names in a list of features, or in a constraint: of `(mpi&big)|x*2` mpi, big and x."""
    if text == "(null)":
        return frozenset()
    return frozenset(name.strip().lower() for name in _BETWEEN.split(text) if name.strip())
