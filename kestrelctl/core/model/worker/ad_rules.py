"""Tells what makes an ad unacceptable."""

from __future__ import annotations

import math
import re

from kestrelctl.core.classad.rules import shown
from kestrelctl.core.model.job.exits import MAX_EXIT_CODE
from kestrelctl.core.model.worker.ad import AssetUnit, WorkerAd
from kestrelctl.core.model.worker.assets import (
    MAX_ASSETS,
    MOST_OF_AN_ASSET,
    SUMS,
    is_asset_name,
    no_asset,
    problem_with_assets,
)
from kestrelctl.core.model.worker.matching_ads import problem_with_attributes
from kestrelctl.core.model.worker.significance import problem_with_expression

#: The longest fact that a worker says of its machine; a host name has no more.
MAX_FACT_CHARACTERS = 255
MAX_TAGS_CHARACTERS = 10_000
#: The most units of all indexed assets of a worker together.
MAX_UNITS = 256
#: The most characters of what is said of all these units together: with it a list has room for any
#: worker.
MAX_UNITS_CHARACTERS = 40_000
#: No comma: a task is told its units with commas between them.
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+-]{0,79}")
#: A task is told its units in `KESTREL_` and the asset's name; these mean something else there.
_NOT_INDEXED = frozenset(
    ("job_id", "job_name", "task_count", "task_id", "task_index", "attempt", "item", "worker",
     "scratch", "inherit", "hosts", "rank", "span", "hostfile"),
)  # fmt: skip


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
    return problem_with_attributes(ad.attributes) or _problem_with_start(ad.start)


def _problem_with_start(start: str) -> str | None:
    mistake = problem_with_expression(start)
    return None if mistake is None else f"start: {shown(start, mistake)}"


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
    said = sum(len(u.vendor) + len(u.model) for units in ad.units.values() for u in units)
    if said > MAX_UNITS_CHARACTERS:
        return f"a worker's units have at most {MAX_UNITS_CHARACTERS:,} characters together"
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
