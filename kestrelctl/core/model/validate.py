"""Tells what makes a submitted job, or an ad, unacceptable."""

from __future__ import annotations

import math
import re

from kestrelctl.core.classad.rules import shown
from kestrelctl.core.model.files.inputs import problem_with_inputs, problem_with_stdin
from kestrelctl.core.model.files.output_addresses import problem_with_output_address
from kestrelctl.core.model.files.output_globs import problem_with_outputs
from kestrelctl.core.model.files.parent_files import not_waited_for, problem_with_parent_files
from kestrelctl.core.model.files.workdir import problem_with_workdir
from kestrelctl.core.model.job.after import problem_with_parents
from kestrelctl.core.model.job.channel_rules import problem_with_channel
from kestrelctl.core.model.job.checkpoint_rules import problem_with_checkpoints
from kestrelctl.core.model.job.ending_rules import problem_with_endings, problem_with_program_ends
from kestrelctl.core.model.job.exits import MAX_EXIT_CODE
from kestrelctl.core.model.job.guest import problem_with_guest
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.span import problem_with_span
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.stage_rules import problem_with_stages
from kestrelctl.core.model.job.task_array import problem_with_ids
from kestrelctl.core.model.job.task_environment import problem_with_environment
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.plural import plural
from kestrelctl.core.model.worker.ad import AssetUnit, WorkerAd
from kestrelctl.core.model.worker.asset_rules import (
    MAX_ASSETS,
    MOST_OF_AN_ASSET,
    SUMS,
    is_asset_name,
    no_asset,
    problem_with_assets,
)
from kestrelctl.core.model.worker.matching_ads import problem_with_attributes
from kestrelctl.core.model.worker.significance import problem_with_expression

MAX_TASKS = 1_000_000_000
MAX_PRIORITY = 255
#: The longest fact that a worker says of its machine; a host name has no more.
MAX_FACT_CHARACTERS = 255
MAX_TAGS_CHARACTERS = 10_000
#: The most units of all indexed assets of a worker together.
MAX_UNITS = 256
#: No comma: a task is told its units with commas between them.
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+-]{0,79}")
#: A task is told its units in `KESTREL_` and the asset's name; these mean something else there.
_NOT_INDEXED = frozenset(
    ("job_id", "job_name", "task_count", "task_id", "task_index", "attempt", "item", "worker",
     "scratch", "inherit", "hosts", "rank", "span", "hostfile"),
)  # fmt: skip


def problem_with_job(spec: JobSpec, *, home: str = "") -> str | None:
    """The first thing wrong with a job, in words for its user; None if all is well.

    Every job passes this check before it becomes one of the pool's, whoever has sent it.

    Args:
        home: the domain of the neighbour that has handed it in; empty for one of the pool's own.
    """
    guest = spec.guest
    if (guest.pool if guest is not None else "") != home:
        return "no user can say that a job is a guest of the pool"
    checks = (
        (
            spec.items is None or len(spec.items) == spec.count,
            f"{plural(len(spec.items or ()), 'item')} for {plural(spec.count, 'task')}",
        ),
        (
            0 <= spec.priority <= MAX_PRIORITY,
            f"priorities go from 0 to {MAX_PRIORITY}, not {spec.priority}",
        ),
        (spec.max_running is None or spec.max_running >= 1, "max_running is at least 1"),
        (spec.max_failures >= 1, "max_failures is at least 1"),
        (spec.max_losses >= 1, "max_losses is at least 1"),
    )
    return (
        (problem_with_guest(guest) if guest is not None else None)
        or next((text for fine, text in checks if not fine), None)
        or problem_with_assets(spec.request, "a task needs")
        or _problem_with_expression("requirements", spec.requirements)
        or _problem_with_expression("rank", spec.rank)
        or _problem_with_task(spec)
        or problem_with_endings(spec)
        or _problem_with_service(spec)
        or problem_with_span(spec)
        or problem_with_parents(spec.after)
        or _problem_with_order(spec)
        or _problem_with_pair(spec)
    )


def problem_with_template(template: Template) -> str | None:
    """The first thing wrong with what a worker is told of a job; None if all is well.

    A worker checks for itself whatever its manager hands it: names of files are put below its
    scratch directories, outside of what isolates tasks.
    """
    return _problem_with_task(template)


def _problem_with_task(told: JobSpec | Template) -> str | None:
    """The first thing wrong with the parts of a job that a worker acts on; None if all is well."""
    if not 1 <= told.count <= MAX_TASKS:
        return f"an array has 1 to {MAX_TASKS:,} tasks, not {told.count}"
    if len(told.name) > 200:
        return "a name has at most 200 characters"
    return problem_with_ids(told) or problem_with_program(told.program)


def problem_with_program(program: Program) -> str | None:
    """The first thing wrong with what is to be run, in words for its user; None if all is well.

    Manager, worker and neighbour all check this.
    """
    limit = program.time_limit_seconds
    texts = (*program.argv, *program.cleanup, *program.env, *program.env.values())
    checks = (
        (bool(program.argv) and bool(program.argv[0]), "the command is empty"),
        (
            limit is None or (math.isfinite(limit) and limit > 0),
            "a time limit is more than 0 seconds",
        ),
        (
            all(name and "=" not in name for name in program.env),
            "names of environment variables are not empty and hold no '='",
        ),
        (
            not any("\0" in text for text in texts),
            "commands and environment cannot hold a NUL character",
        ),
    )
    return (
        next((text for fine, text in checks if not fine), None)
        or problem_with_workdir(program.workdir)
        or problem_with_inputs(program.inputs, program.workdir)
        or problem_with_parent_files(program.parent_files, program.inputs, program.workdir)
        or problem_with_stdin(program.stdin)
        or problem_with_environment(program.environment)
        or problem_with_program_ends(program)
        or problem_with_outputs(program)
        or problem_with_output_address(program)
        or problem_with_stages(program.stages)
        or problem_with_checkpoints(program)
        or problem_with_channel(program)
    )


def _problem_with_service(spec: JobSpec) -> str | None:
    """The first thing that a copy of a service cannot do; None if all is well."""
    program = spec.program
    if spec.service and program.outputs:
        return "a copy of a service is started again whenever it ends: it leaves no outputs"
    if spec.service and program.stages:
        return "a copy of a service is started again whenever it ends: it has no stages"
    if spec.service and program.checkpoints:
        return "a copy of a service is started anew whenever it ends: it goes on from nothing"
    return None


def _problem_with_pair(spec: JobSpec) -> str | None:
    """The first thing wrong with how its tasks wait for another job's; None if all is well."""
    parent = spec.after_each
    if not parent:
        return None
    if parent < 0:
        return f"there is no job {parent}"
    if problem := problem_with_waiting_each(spec):
        return problem
    if any(each.first <= parent <= each.last for each in spec.after):
        return f"it waits for all of job {parent}, so not for each task of it as well"
    return None


def problem_with_waiting_each(spec: JobSpec) -> str | None:
    """Says why tasks of a job cannot wait for those of another, one for one; None if they can."""
    if spec.service:
        return "tasks of a service do not wait for those of another job, one for one"
    if spec.span > 1:
        return "a job that spans workers starts all its tasks together, none behind another's"
    return None


def _problem_with_order(spec: JobSpec) -> str | None:
    there = [each for each in spec.program.parent_files if not each.placed]
    early = not_waited_for(there, spec.after, spec.after_each)
    if early is None:
        return None
    return f"files of job {early} are wanted, and that it ends well is not waited for"


def _problem_with_expression(name: str, text: str) -> str | None:
    mistake = problem_with_expression(text)
    return None if mistake is None else f"{name}: {shown(text, mistake)}"


def problem_with_ad(ad: WorkerAd) -> str | None:
    """The first thing wrong with an ad; None if all is well."""
    problem = (
        problem_with_assets(ad.assets, "a worker has")
        or _problem_with_kinds(ad)
        or _problem_with_unknown(ad)
    )
    if problem:
        return problem
    for name in ("host", "os", "arch", "version"):
        if len(getattr(ad, name)) > MAX_FACT_CHARACTERS:
            return f"a worker's {name} has at most {MAX_FACT_CHARACTERS} characters"
    if not 0 <= ad.distance_seconds < math.inf:
        return "a worker is 0 or more seconds away"
    if sum(len(tag) + 1 for tag in ad.tags) > MAX_TAGS_CHARACTERS:
        return f"a worker's tags have at most {MAX_TAGS_CHARACTERS:,} characters together"
    return problem_with_attributes(ad.attributes) or _problem_with_expression("start", ad.start)


def _problem_with_kinds(ad: WorkerAd) -> str | None:
    """The first thing wrong with the units and the shared assets of an ad; None if all is well."""
    if sum(map(len, ad.units.values())) > MAX_UNITS:
        return f"a worker has at most {MAX_UNITS} units of its assets together"
    if len(ad.units) > MAX_ASSETS or len(ad.shared) > MAX_ASSETS:
        return f"a worker has at most {MAX_ASSETS} assets"
    if len(set(ad.shared)) < len(ad.shared):
        return "an asset is said to be shared twice"
    for name in (*ad.units, *ad.shared):
        if not is_asset_name(name):
            return no_asset(name)
        if name in SUMS:
            return f"{name} is an amount: it has no units and is not shared"
        amount = ad.assets.get(name, 0.0)
        if name in ad.shared and (name in ad.units or amount != int(amount)):
            return f"{name} is shared by a whole number of uses, and has no units"
        if name in ad.units and amount != len(ad.units[name]):
            return f"there are {len(ad.units[name])} units of {name}, not {amount:,.10g}"
        if name in ad.units and name in _NOT_INDEXED:
            return f"{name} cannot have units: KESTREL_{name.upper()} means something else"
    for name, units in ad.units.items():
        if len({unit.id for unit in units}) < len(units):
            return f"two units of {name} have the same id"
        if problem := next(filter(None, map(_problem_with_unit, units)), None):
            return f"{problem}, in {name}"
    return None


def _problem_with_unknown(ad: WorkerAd) -> str | None:
    """The first thing wrong with the assets of unknown capacity; None if all is well."""
    if len(ad.assets.keys() | ad.unknown.keys()) > MAX_ASSETS:
        return f"a worker has at most {MAX_ASSETS} assets"
    of_status: dict[int, str] = {}
    for name, status in ad.unknown.items():
        if not is_asset_name(name):
            return no_asset(name)
        if name in SUMS:
            return f"how much {name} it has, a worker always says"
        if name in ad.assets or name in ad.units or name in ad.shared:
            return f"how much {name} there is cannot be both said and unknown"
        if not 1 <= status <= MAX_EXIT_CODE:
            return (
                f"by an exit status from 1 to {MAX_EXIT_CODE} a task says that there is no more"
                f" {name}, not by {status}"
            )
        if status in of_status:
            other = of_status[status]
            return f"exit status {status} cannot mean both: no more {other}, and no more {name}"
        of_status[status] = name
    return None


def _problem_with_unit(unit: AssetUnit) -> str | None:
    if not _UNIT.fullmatch(unit.id):
        return f"{unit.id[:40]!r} is no id of a unit"
    for fact in (unit.vendor, unit.model):
        if len(fact) > MAX_FACT_CHARACTERS or not fact.isprintable():
            return f"{fact[:40]!r} says nothing of a unit"
    if not 0 <= unit.memory_bytes < MOST_OF_AN_ASSET:
        return f"a unit has no {unit.memory_bytes:,} bytes of memory"
    return None
