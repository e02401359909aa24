"""Compares what waits in the pool with the workers that environments would have.

These workers are not there yet: what each will say of itself follows from its class and from the
host that would make it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from kestrelctl.core.environments.environment_class import SEES_HOSTS_FILES, EnvironmentClass
from kestrelctl.core.environments.host_share import host_share
from kestrelctl.core.environments.on_demand import EnvironmentNeed, HostRoom, amounts_of
from kestrelctl.core.model.files import addresses, outputs, workdir
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.job.task_environment import KINDS as TASK_KINDS
from kestrelctl.core.model.job.task_environment import tag_of
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import amounts, natural
from kestrelctl.core.model.worker.isolation import is_reserved
from kestrelctl.core.model.worker.own_tags import first_own
from kestrelctl.core.pool import Pool
from kestrelctl.core.scheduling.unmet import Unmet
from kestrelctl.manager.environments.table import WORKER_PREFIX

#: The most shapes of what waits that are compared with the classes.
MOST_SHAPES = 50
#: The most workers that are not there yet and are remembered.
MOST_IMAGINED = 1_000

_WORKDIR = workdir.TAG.upper()
#: Tags that only workers have that see the files of their users.
_OF_FILES = {
    _WORKDIR,
    outputs.FILE_TAG.upper(),
    f"{addresses.TAG_PREFIX}{addresses.FILE}".upper(),
}

#: Tags that only workers have that make environments.
_OF_HOSTS = {tag_of(kind).upper() for kind in TASK_KINDS}


class EnvironmentDemand:
    """The part of what waits that environments could run.

    Attributes:
        needed: how many tasks each class could run, at the last look.
    """

    def __init__(
        self, pool: Pool, classes: Mapping[str, EnvironmentClass], workers_host: str
    ) -> None:
        self._pool = pool
        self._classes = classes
        self._workers_host = workers_host
        self.needed: Counter[str] = Counter()
        self._imagined: dict[tuple[object, ...], WorkerAd] = {}
        #: By host: its ad, and by class the ad of an environment's worker there.
        self._of_hosts: dict[str, tuple[WorkerAd, dict[str, WorkerAd]]] = {}
        #: By host: its ad, the ad of an environment's worker there, and its ad with those assets.
        self._as_hosts: dict[str, tuple[WorkerAd, WorkerAd, WorkerAd]] = {}

    def forget_host(self, host: str) -> None:
        """Forgets a host that has gone."""
        self._as_hosts.pop(host, None)
        self._of_hosts.pop(host, None)

    def unmet(self, now: float) -> list[Unmet]:
        """The shapes that wait for nothing but a worker."""
        return self._pool.unmet(now)[:MOST_SHAPES] if self._classes else []

    def needs(self, hosts: Sequence[HostRoom], unmet: Sequence[Unmet]) -> list[EnvironmentNeed]:
        """Finds which waiting shapes environments could run, and the classes of these."""
        found: list[EnvironmentNeed] = []
        self.needed.clear()
        imagined = self._imagine_all(hosts) if unmet else {}
        for each in unmet:
            places: dict[str, int] = {}
            for name, (host, ad) in imagined.items():
                jid = f"{WORKER_PREFIX}{name}@{self._workers_host}/x"
                fits = self._pool.would_fit(each.shape, ad, jid) is None
                if fits and not self._could_itself(host, ad, each.shape):
                    places[name] = _places(each.shape.request, amounts(ad.assets))
                    self.needed[name] += each.tasks
            if places:
                found.append(EnvironmentNeed(each.tasks, places))
        return found

    def _could_itself(self, host: str, ad: WorkerAd, shape: Shape) -> bool:
        """Whether a host could run tasks of a shape with what an environment there would have.

        Then an environment would be of no use: the tasks wait for that room, whoever has it.
        """
        hosts_ad = self._pool.workers[host].ad
        known = self._as_hosts.get(host)
        if known is None or known[0] is not hosts_ad or known[1] is not ad:
            small = msgspec.structs.replace(
                hosts_ad, assets=ad.assets, units={}, shared=(), unknown={}, ends_at=None
            )
            known = self._as_hosts[host] = (hosts_ad, ad, small)
        return self._pool.would_fit(shape, known[2], host) is None

    def _imagine_all(self, hosts: Sequence[HostRoom]) -> dict[str, tuple[str, WorkerAd]]:
        """Makes, for each class that some host makes, the least ad of its worker, with the host.

        What a worker has is a part of its host, so hosts differ; those without room do not count if
        others have some.
        """
        found: dict[str, tuple[str, WorkerAd]] = {}
        for name, cls in self._classes.items():
            if cls.runs:
                continue
            makes = [host for host in hosts if name in host.classes]
            roomy = [host for host in makes if has(host.free, amounts_of(cls))]
            ads = [(host.name, self._imagine(cls, host.name)) for host in roomy or makes]
            if ads:
                found[name] = min(ads, key=lambda each: each[1].assets.get("memory", 0.0))
        return found

    def coming_for(self, shape: Shape, all_hosts: Sequence[HostRoom]) -> list[str]:
        """The classes of which an environment could run work of a shape, and is made by a host that
        is large enough.
        """
        hosts = [host for host in all_hosts if host.classes]
        found: list[str] = []
        for name, cls in self._classes.items():
            taken = amounts_of(cls)
            makes = (host for host in hosts if name in host.classes and has(host.whole, taken))
            here = next((host.name for host in makes), None)
            if here is None or cls.runs:
                continue
            jid = f"{WORKER_PREFIX}{name}@{self._workers_host}/x"
            if self._pool.would_fit(shape, self._imagine(cls, here), jid) is None:
                found.append(name)
        return found

    def gives_way(self, shape: Shape, hosts: Sequence[HostRoom]) -> str:
        """Finds a host that could run a shape with what its environments have; empty for none."""
        for host in hosts:
            ad = msgspec.structs.replace(
                self._pool.workers[host.name].ad, assets=natural(host.whole)
            )
            if self._pool.would_fit(shape, ad, host.name) is None:
                return host.name
        return ""

    def _imagine(self, cls: EnvironmentClass, host: str) -> WorkerAd:
        """Makes the ad that the worker of an environment of a class on a host will have."""
        ad = self._pool.workers[host].ad
        known = self._of_hosts.get(host)
        if known is None or known[0] is not ad:
            known = self._of_hosts[host] = (ad, {})
        found = known[1].get(cls.name)
        if found is None:
            found = known[1][cls.name] = self._imagine_from(cls, ad)
        return found

    def _imagine_from(self, cls: EnvironmentClass, ad: WorkerAd) -> WorkerAd:
        machine = (ad.os.upper(), ad.arch.upper())
        lacks = (
            set(_OF_HOSTS)
            if cls.kind in SEES_HOSTS_FILES and _WORKDIR in ad.tags
            else _OF_FILES | _OF_HOSTS
        )
        tags = tuple(
            tag
            for tag in ad.tags
            if (tag in machine or is_reserved(tag) or first_own([tag])) and tag not in lacks
        )
        said = natural(amounts_of(cls))
        assets = said | host_share(ad.assets, said)
        key = (cls.name, tags, *assets.items())
        found = self._imagined.get(key)
        if found is None:
            if len(self._imagined) >= MOST_IMAGINED:
                self._imagined.clear()
            own = tuple(tag.upper() for tag in cls.tags)
            found = self._imagined[key] = msgspec.structs.replace(
                ad,
                assets=assets,
                tags=(*tags, *own),
                attributes={},
                properties={},
                units={},
                shared=(),
                unknown={},
                start="",
                ends_at=None,
            )
        return found


def has(there: Mapping[str, int], taken: Mapping[str, int]) -> bool:
    """Whether all of that is there."""
    return all(there.get(asset, 0) >= amount for asset, amount in taken.items())


def _places(request: Mapping[str, int], has: Mapping[str, int]) -> int:
    """Counts the tasks that have room; one at least: policies may charge less."""
    return max(1, min((has.get(a, 0) // n for a, n in request.items() if n), default=1))
