"""HTCondor: `condor_q` and `condor_status`, which print ClassAds as JSON.

The attributes are those of HTCondor's manual, "Job ClassAd Attributes" and "Machine ClassAd
Attributes". A feature is an attribute of machines that is true, and that jobs name in their
requirements. There are no partitions.
"""

from __future__ import annotations

import re
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
    merged,
)

JOBS = (
    *("condor_q", "-allusers", "-json"),
    *("-attributes", "JobStatus,JobUniverse,MinHosts,Requirements"),
)
#: Any attribute may be a feature, so all are printed.
NODES = ("condor_status", "-json")

_PHASES = {1: PENDING, 2: RUNNING, 6: RUNNING, 7: RUNNING}
#: Jobs of these universes need no machine: scheduler, grid, local.
_WITHOUT_MACHINE = (7, 9, 12)
_ALLOCATED = ("Claimed", "Preempting", "Matched")
_NAME = re.compile(r"[A-Za-z_]\w*")


def read_jobs(text: str) -> list[BatchJobs]:
    """Reads what `JOBS` printed.

    Raises:
        UnreadableOutput: it is something else.
    """
    found = []
    for job in _ads(text):
        phase = _PHASES.get(job.get("JobStatus", 0))
        if phase is None or job.get("JobUniverse") in _WITHOUT_MACHINE:
            continue
        hosts = job.get("MinHosts", 1)
        names = _NAME.findall(str(job.get("Requirements", "")))
        features = frozenset(name.lower() for name in names)
        nodes = hosts if isinstance(hosts, int) else 1
        found.append(BatchJobs(phase, 1, nodes, features, frozenset()))
    return found


def read_nodes(text: str) -> list[BatchNode]:
    """Reads what `NODES` printed: machines, each with all its slots.

    Raises:
        UnreadableOutput: it is something else.
    """
    found = []
    for slot in _ads(text):
        state = slot.get("State")
        phase = ALLOCATED if state in _ALLOCATED else IDLE if state == "Unclaimed" else ""
        features = frozenset(name.lower() for name, value in slot.items() if value is True)
        found.append(BatchNode(str(slot.get("Machine", "")), phase, features, frozenset()))
    return merged(found)


def _ads(text: str) -> list[dict[str, Any]]:
    """A list of ads; nothing at all is printed if there are none."""
    if not text.strip():
        return []
    try:
        return msgspec.json.decode(text, type=list[dict[str, Any]])
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise UnreadableOutput(f"it is no list of ads in JSON: {error}") from None
