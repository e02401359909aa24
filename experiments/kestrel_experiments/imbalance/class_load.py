"""The imbalance of the source: three classes of work, of which one has most of it.

Servoli, Mariotti and Cefala, "A Proposal to Dynamically Manage Virtual Environments in
Heterogeneous Computing Facilities": hosts are given to three classes "in a mutually exclusive way",
one is "heavily loaded", and the others "may be in an idle state". The source has no figures of it:
the amount of work of each class, and when it comes, are chosen here.
"""

from __future__ import annotations

from random import Random
from typing import Literal, NamedTuple

import msgspec

from kestrelctl.core.environments.environment_class import EnvironmentClass, EnvironmentResources

#: The share of the tasks that each class has, the loaded one first.
SHARES = {"a": 0.8, "b": 0.1, "c": 0.1}

#: `static`: a third of the hosts for each class, for good. `on-demand`: any host for any class.
#: `kept`: like `on-demand`, but some environments of each class stay though they have no work.
Sharing = Literal["static", "on-demand", "kept"]
SHARINGS: tuple[Sharing, ...] = ("static", "on-demand", "kept")


class ClassTask(NamedTuple):
    """A task: when it is submitted, how long it runs, and its class."""

    at: float
    seconds: float
    of: str


class ImbalancePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts and work.

    Attributes:
        hosts: machines that have room for one task each.
        tasks: number of tasks of all classes.
        mean_seconds: how long a task runs on average; each runs from half to one and a half of it.
        over: the part, of the time that all hosts together need for the tasks, within which these
            come; 0 for all at once.
        kept: how many environments of each class stay though they have no work, if the sharing is
            `kept`.
        idle_seconds: how long an environment stays without work.
        start_seconds: how long an environment may take to come up.
    """

    hosts: int
    tasks: int
    mean_seconds: float
    over: float = 1.0
    kept: int = 1
    idle_seconds: float = 2.0
    start_seconds: float = 60.0


def tag_of(of: str) -> str:
    """Returns the tag that the workers of a class have, and that its tasks ask for."""
    return f"class-{of}"


def class_load(plan: ImbalancePlan, seed: int) -> list[ClassTask]:
    """Draws the tasks of a seed, in the order of their moments. Each class has its exact share."""
    random = Random(f"{seed} imbalance")
    within = plan.over * plan.tasks * plan.mean_seconds / plan.hosts
    found: list[ClassTask] = []
    for of, count in zip(SHARES, _counts(plan.tasks), strict=True):
        for _ in range(count):
            at = random.uniform(0.0, within)
            seconds = round(plan.mean_seconds * random.uniform(0.5, 1.5), 3)
            found.append(ClassTask(at, seconds, of))
    return sorted(found)


def _counts(tasks: int) -> list[int]:
    others = [round(tasks * share) for share in list(SHARES.values())[1:]]
    return [tasks - sum(others), *others]


def thirds(hosts: int) -> dict[str, int]:
    """Shares hosts out evenly among the classes; the first classes get what is left."""
    even, left = divmod(hosts, len(SHARES))
    return {of: even + (place < left) for place, of in enumerate(SHARES)}


def environment_classes(plan: ImbalancePlan, sharing: Sharing) -> list[EnvironmentClass]:
    """Makes the classes of a pool that shares hosts out so. An environment takes a whole host."""
    parts = thirds(plan.hosts)
    bounds = {
        "static": parts,
        "on-demand": dict.fromkeys(parts, 0),
        "kept": dict.fromkeys(parts, plan.kept),
    }
    return [
        EnvironmentClass(
            name=of,
            kind="venv",
            tags=(tag_of(of),),
            resources=EnvironmentResources(cpus=1.0),
            minimum=minimum,
            maximum=minimum if sharing == "static" else plan.hosts,
            start_seconds=plan.start_seconds,
            idle_seconds=plan.idle_seconds,
        )
        for of, minimum in bounds[sharing].items()
    ]


def least_makespan(plan: ImbalancePlan, sharing: Sharing, tasks: list[ClassTask]) -> float:
    """Computes the least makespan of a pool that shares its hosts out so: N·t/W, of the worst class
    if they are shared out for good.
    """
    if sharing != "static":
        return sum(task.seconds for task in tasks) / plan.hosts
    return max(
        sum(task.seconds for task in tasks if task.of == of) / hosts
        for of, hosts in thirds(plan.hosts).items()
    )
