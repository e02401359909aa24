"""A question about a batch system, in the words of a property: `slurm pending feature=mpi`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kestrelctl.core.batch import grid_engine, htcondor, pbs, slurm
from kestrelctl.core.batch.queue_facts import PENDING, RUNNING, BatchJobs, BatchNode
from kestrelctl.errors import UsageError

#: A program with its arguments.
Command = tuple[str, ...]


class BatchSystem(NamedTuple):
    """The commands that ask a batch system, and the functions that read its answers.

    Attributes:
        jobs: the commands that tell of jobs; `read_jobs` is given what each of them printed.
        nodes: the command that tells of nodes.
    """

    jobs: tuple[Command, ...]
    read_jobs: Callable[..., list[BatchJobs]]
    nodes: Command
    read_nodes: Callable[[str], list[BatchNode]]


SYSTEMS = {
    "gridengine": BatchSystem(
        (grid_engine.JOBS, grid_engine.JOBS_WITH_DATE),
        grid_engine.read_jobs,
        grid_engine.NODES,
        grid_engine.read_nodes,
    ),
    "htcondor": BatchSystem(
        (htcondor.JOBS,), htcondor.read_jobs, htcondor.NODES, htcondor.read_nodes
    ),
    "pbs": BatchSystem((pbs.JOBS,), pbs.read_jobs, pbs.NODES, pbs.read_nodes),
    "slurm": BatchSystem((slurm.JOBS,), slurm.read_jobs, slurm.NODES, slurm.read_nodes),
}
#: Jobs, and the nodes that jobs of both phases ask for.
OF_JOBS = (PENDING, RUNNING, "wanted")
OF_NODES = ("idle", "allocated")
_KEYS = ("feature", "partition")


class BatchQuestion:
    """A question for a number of jobs or nodes.

    Args:
        words: a system, what to count, and what jobs or nodes are to have.

    Raises:
        UsageError: there is no such question.
    """

    def __init__(self, words: Sequence[str]) -> None:
        system, what, *having = [*words, "", ""][: max(2, len(words))]
        self._system = SYSTEMS[_one_of(system, tuple(SYSTEMS))]
        self._what = _one_of(what, (*OF_JOBS, *OF_NODES))
        wanted = dict.fromkeys(_KEYS, "")
        for word in having:
            key, _, value = word.partition("=")
            if not value:
                raise UsageError(f"{word!r} has no value", hint="feature=mpi")
            wanted[_one_of(key, _KEYS)] = value
        if wanted["partition"] and system == "htcondor":
            raise UsageError("HTCondor has no partitions")
        self._feature, self._partition = wanted["feature"].lower(), wanted["partition"]

    @property
    def commands(self) -> tuple[Command, ...]:
        """The programs that know the answer together."""
        return self._system.jobs if self._what in OF_JOBS else (self._system.nodes,)

    def answer(self, *printed: str) -> int:
        """Counts the jobs or nodes that the question is about.

        Args:
            printed: what each of the commands printed.

        Raises:
            UnreadableOutput: it is something else than what the program prints.
        """
        if self._what in OF_NODES:
            nodes = self._system.read_nodes(*printed)
            return sum(node.phase == self._what and self._is_meant(node) for node in nodes)
        jobs = [each for each in self._system.read_jobs(*printed) if self._is_meant(each)]
        if self._what == "wanted":
            return sum(each.jobs * each.nodes for each in jobs)
        return sum(each.jobs for each in jobs if each.phase == self._what)

    def _is_meant(self, each: BatchJobs | BatchNode) -> bool:
        return (not self._feature or self._feature in each.features) and (
            # A job or node that names no partition may be in any.
            not self._partition or not each.partitions or self._partition in each.partitions
        )


def _one_of(word: str, known: Sequence[str]) -> str:
    if word not in known:
        raise UsageError(f"{word!r} is not one of {', '.join(known)}")
    return word
