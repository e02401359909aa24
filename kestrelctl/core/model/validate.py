"""What makes a submitted job, or an ad, unacceptable."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from kestrelctl.core.model.ad import WorkerAd
from kestrelctl.core.model.assets import MILLI
from kestrelctl.core.model.spec import JobSpec

MAX_TASKS = 1_000_000_000
MAX_PRIORITY = 255
MAX_ID = 1_000_000_000_000
#: What a worker says of its machine, each; a host name has no more.
MAX_FACT_CHARACTERS = 255
MAX_TAGS_CHARACTERS = 10_000
MAX_ASSETS = 16
MOST_CPUS = 1_000_000
#: Of any other asset, in its natural unit; or none.
MOST_OF_AN_ASSET = 1 << 60
LEAST_OF_AN_ASSET = 1 / MILLI
_ASSET = re.compile(r"[a-z][a-z0-9_]{0,31}")


def problem_with_job(spec: JobSpec) -> str | None:
    """The first thing wrong with a job, in words for its user; None if all is well."""
    checks = (
        (bool(spec.argv) and bool(spec.argv[0]), "the command is empty"),
        (1 <= spec.count <= MAX_TASKS, f"an array has 1 to {MAX_TASKS:,} tasks, not {spec.count}"),
        (abs(spec.first) <= MAX_ID, f"the first task cannot have the id {spec.first}"),
        (spec.step <= MAX_ID, f"the step of an array cannot be {spec.step}"),
        (spec.step >= 1, f"the step of an array is at least 1, not {spec.step}"),
        (
            spec.items is None or len(spec.items) == spec.count,
            f"{len(spec.items or ())} items for {spec.count} tasks",
        ),
        (
            0 <= spec.priority <= MAX_PRIORITY,
            f"priorities go from 0 to {MAX_PRIORITY}, not {spec.priority}",
        ),
        (spec.max_running is None or spec.max_running >= 1, "max_running is at least 1"),
        (spec.max_failures >= 1, "max_failures is at least 1"),
        (spec.max_losses >= 1, "max_losses is at least 1"),
        (
            spec.time_limit_seconds is None
            or (math.isfinite(spec.time_limit_seconds) and spec.time_limit_seconds > 0),
            "a time limit is more than 0 seconds",
        ),
        (len(spec.name) <= 200, "a name has at most 200 characters"),
        (
            all(name and "=" not in name for name in spec.env),
            "names of environment variables are not empty and hold no '='",
        ),
        (
            not any(
                "\0" in text for text in (*spec.argv, *spec.cleanup, *spec.env, *spec.env.values())
            ),
            "commands and environment cannot hold a NUL character",
        ),
    )
    return next((text for fine, text in checks if not fine), None) or _problem_with_assets(
        spec.request, "a task needs"
    )


def _problem_with_assets(assets: Mapping[str, float], who: str) -> str | None:
    """The first thing wrong with what somebody needs or has; None if all is well."""
    if len(assets) > MAX_ASSETS:
        return f"{who} at most {MAX_ASSETS} assets, not {len(assets)}"
    cpus = assets.get("cpus", 0.0)
    if not LEAST_OF_AN_ASSET <= cpus <= MOST_CPUS:
        return f"{who} 0.001 to {MOST_CPUS:,} cpus, not {cpus:,.10g}"
    for name, amount in assets.items():
        if not _ASSET.fullmatch(name):
            return f"{name[:40]!r} is no name of an asset"
        if amount and not LEAST_OF_AN_ASSET <= amount < MOST_OF_AN_ASSET:
            return f"{who} no {name} or 0.001 to less than 2^60, not {amount:,.10g}"
    return None


def problem_with_ad(ad: WorkerAd) -> str | None:
    """The first thing wrong with an ad; None if all is well."""
    problem = _problem_with_assets(ad.assets, "a worker has")
    if problem:
        return problem
    for name in ("host", "os", "arch", "version"):
        if len(getattr(ad, name)) > MAX_FACT_CHARACTERS:
            return f"a worker's {name} has at most {MAX_FACT_CHARACTERS} characters"
    if sum(len(tag) + 1 for tag in ad.tags) > MAX_TAGS_CHARACTERS:
        return f"a worker's tags have at most {MAX_TAGS_CHARACTERS:,} characters together"
    return None
