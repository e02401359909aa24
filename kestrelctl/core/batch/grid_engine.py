"""Grid Engine: one call of `qstat` tells of jobs and queues, another of jobs with a date.

The form is that of `qstat.xsd` in Grid Engine's sources, and of what its programs really print:
`Queue-List` where the schema has `queue_info`. A feature is a boolean resource (`-l mpi=TRUE`).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from xml.etree import ElementTree

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

#: Tasks of arrays each by itself, resources of queues and requests of jobs, of all users.
JOBS = NODES = ("qstat", "-f", "-F", "-r", "-g", "d", "-u", "*", "-xml")
#: Waiting jobs that were given a date (`qsub -a`), also one that is over: `JOBS` does not tell.
JOBS_WITH_DATE = ("qstat", "-s", "ha", "-u", "*", "-xml")

_TRUE = {"true", "1", "1.000000"}
#: States of a queue in which nothing starts (qstat(1), "state"), and nothing is to.
_OUT_OF_ORDER = set("uaACdDsSEco")


def read_jobs(text: str, with_date: str) -> list[BatchJobs]:
    """Reads what `JOBS` and `JOBS_WITH_DATE` printed.

    A parallel job counts as one node: the programs do not say where its slots are.

    Raises:
        UnreadableOutput: it is something else.
    """
    tree = _tree(text)
    dated = {each.text for each in _tree(with_date).iter("JB_job_number")}
    places = {each.findtext("name", "") for each in tree.iter("Queue-List")}
    found = [
        _job(job, {_queue(queue.findtext("name", ""))})
        for queue in tree.iter("Queue-List")
        for job in queue.iter("job_list")
    ]
    found += [
        _job(job, _asked_queues(job, places))
        for waiting in tree.iter("job_info")
        for job in waiting.findall("job_list")
        if not (job.findtext("JB_job_number") in dated and _has_no_priority(job))
    ]
    return [each for each in found if each.phase]


def _has_no_priority(job: ElementTree.Element) -> bool:
    """Whether the scheduler has not looked at a job, as is so for each before its date."""
    try:
        return float(job.findtext("JAT_prio", "0")) == 0.0
    except ValueError:
        raise UnreadableOutput("the priority of a job is no number") from None


def _asked_queues(job: ElementTree.Element, places: set[str]) -> set[str]:
    """The queues in which a job may run; empty for any, and where brackets group what it asks for.

    Source: sge_types(1), "wc_queue" and "expression".

    Args:
        places: each queue at each host, `all.q@oak`. An expression that fits none of them stands
            for itself.
    """
    asked = {each.text or "" for each in job.iter("hard_req_queue")}
    if any("(" in expression for expression in asked):
        return set()
    found = set()
    for expression in asked:
        fitting = {_queue(place) for place in places if _fits(expression, place)}
        found |= fitting or {_queue(expression)}
    return found


def _fits(expression: str, place: str) -> bool:
    """Whether a queue at a host fits `all*@oak` or `a*&!all.q|b.q`: `&` binds tighter than `|`."""
    return any(
        all(_pattern_fits(pattern, place) for pattern in alternative.split("&"))
        for alternative in expression.split("|")
    )


def _pattern_fits(pattern: str, place: str) -> bool:
    """Whether a place fits a pattern. Nobody says who is in a group of hosts (`@@fast`)."""
    queue, _, host = pattern.removeprefix("!").partition("@")
    its_queue, _, its_host = place.partition("@")
    fits = fnmatchcase(its_queue, queue or "*")
    if fits and host.startswith("@"):
        return True
    # Domains do not count, unless the cluster is set up so (sge_bootstrap(5), "ignore_fqdn").
    fits = fits and fnmatchcase(_first_label(its_host), _first_label(host) or "*")
    return fits != pattern.startswith("!")


def _first_label(host: str) -> str:
    return host.partition(".")[0]


def _job(job: ElementTree.Element, queues: set[str]) -> BatchJobs:
    state = set(job.findtext("state", ""))
    phase = PENDING if "q" in state else RUNNING
    if state & set("Ed") or (phase == PENDING and "h" in state):
        phase = ""  # failed, deleted, or held: a hold ends nothing that runs
    return BatchJobs(phase, 1, 1, _true_ones(job, "hard_request"), frozenset(queues))


def _true_ones(element: ElementTree.Element, tag: str) -> frozenset[str]:
    return frozenset(
        each.get("name", "").lower()
        for each in element.iter(tag)
        if (each.text or "").strip().lower() in _TRUE
    )


def read_nodes(text: str) -> list[BatchNode]:
    """Reads what `NODES` printed: hosts, each with all its queues.

    Raises:
        UnreadableOutput: it is something else.
    """
    found = []
    for queue in _tree(text).iter("Queue-List"):
        name = queue.findtext("name", "")
        used = queue.findtext("slots_used", "")
        if not used.isdecimal():
            raise UnreadableOutput(f"queue {name[:40]} has no slots_used")
        phase = ALLOCATED if int(used) else IDLE
        if _OUT_OF_ORDER & set(queue.findtext("state", "")):
            phase = ""
        host, partitions = name.rpartition("@")[2], frozenset([_queue(name)])
        found.append(BatchNode(host, phase, _true_ones(queue, "resource"), partitions))
    return merged(found)


def _queue(name: str) -> str:
    return name.partition("@")[0]


def _tree(text: str) -> ElementTree.Element:
    try:
        found = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise UnreadableOutput(f"it is not XML: {error}") from None
    if found.tag != "job_info":
        raise UnreadableOutput(f"it is no job_info: {found.tag[:40]}")
    return found
