"""The ads of workers that a pool lends: of a class in announcements, of a loan as a worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from kestrelctl.core.model.files import workdir
from kestrelctl.core.model.job.shape import HOME_TAGS
from kestrelctl.core.model.neighbour import LEAST_CPUS
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import MOST_CPUS
from kestrelctl.core.model.worker.matching_ads import amounts_ad
from kestrelctl.flock.rules.start_text import ALWAYS, NEVER


def lent_machine(ad: WorkerAd, *, any_workdir: bool = False) -> WorkerAd:
    """Makes the ad of one machine of a class, as others see it.

    Units of assets have no names there: a task is given some by the pool that lends them. Assets
    that tasks share, or of which nobody knows how much there is, are not lent.

    Args:
        any_workdir: all pools are of one user and one machine: directories are the same to all.
    """
    kept = {workdir.TAG} if any_workdir else set()
    hidden = {*ad.shared, *ad.unknown}
    return msgspec.structs.replace(
        ad,
        assets={name: amount for name, amount in ad.assets.items() if name not in hidden},
        units={},
        shared=(),
        unknown={},
        tags=tuple(tag for tag in ad.tags if tag.lower() not in HOME_TAGS - kept),
        host="",
        ends_at=None,
        distance_seconds=0.0,
    )


def loan_ad(
    machine: WorkerAd,
    amounts: Mapping[str, float],
    conditions: Iterable[str],
    host: str,
    ends_at: float,
) -> WorkerAd:
    """Makes the ad of a loan: a worker with all that is lent, in which each task fits one machine.

    Args:
        machine: one of the class.
        amounts: what is lent of it together.
        conditions: what else must be true of a job.
        host: what the borrower's users see as its machine.
        ends_at: when the loan ends, by the lender's steady clock.
    """
    lent = {name: amount for name, amount in amounts.items() if name in machine.assets}
    lent["cpus"] = min(max(lent.get("cpus", 0.0), LEAST_CPUS), MOST_CPUS)
    wanted = [machine.start, *fits_one(machine), *conditions]
    said = [each for each in wanted if each not in ("", ALWAYS)]
    return msgspec.structs.replace(
        machine,
        assets=lent,
        host=host,
        start=" && ".join(f"({each})" for each in said),
        ends_at=round(ends_at, 3),
    )


def resting_ad(amounts: Mapping[str, float], host: str, ends_at: float) -> WorkerAd:
    """Makes the ad of a loan of machines that the lender's manager has not seen since it started.

    What runs goes on, and nothing new comes, for it could not be said which machines it may have.

    Args:
        amounts: what is lent together.
        host, ends_at: as in `loan_ad`.
    """
    lent = {**amounts, "cpus": max(amounts.get("cpus", 0.0), LEAST_CPUS)}
    return WorkerAd(assets=lent, host=host, start=NEVER, ends_at=round(ends_at, 3))


def fits_one(machine: WorkerAd) -> list[str]:
    """Makes the conditions of a job whose tasks fit one such machine."""
    return [
        f"TARGET.{name} is undefined || TARGET.{name} <= {amount!r}"
        for name, amount in amounts_ad(machine.assets, "Request").items()
    ]
