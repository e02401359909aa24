"""Tells what the pool's addresses are and have: XEP-0030, in pages as XEP-0059 has them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from xml.etree.ElementTree import Element

from kestrelctl.checkout import own_version
from kestrelctl.core.members.availability import worker_state
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import NotFound
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.chat.addresses import Addresses
from kestrelctl.manager.chat.commands import COMMANDS_AT
from kestrelctl.manager.chat.presence import PresenceService
from kestrelctl.manager.service import Service
from kestrelctl.protocol.forms import COMMANDS, DISCO_INFO, DISCO_ITEMS, PING, VCARD, Iq, element

_PAGES = "http://jabber.org/protocol/rsm"
#: The most items in one answer.
MOST_ITEMS = 100
#: Nodes of `pool@`, as the first Kestrel had them, and the states of the workers that they list.
_WORKER_NODES: dict[str, tuple[str, ...]] = {
    "online": ("idle", "busy", "draining", "quarantined"),
    "available": ("idle",),
    "busy": ("busy",),
}
#: Nodes of `jobs@`: whether the caller's active jobs that they list have tasks that run.
_JOB_NODES = {"queued": False, "running": True}
_FEATURES = (DISCO_INFO, DISCO_ITEMS, COMMANDS, PING, VCARD, _PAGES)


class Disco:
    """Answers what an address is, and what is to be found there."""

    def __init__(self, service: Service, desk: PresenceService, addresses: Addresses) -> None:
        self._service = service
        self._desk = desk
        self._addresses = addresses

    async def knows(self, caller: Caller, address: str) -> bool:
        """Whether that address is one of the pool, and the caller's to ask."""
        fixed = (self._addresses.domain, self._addresses.pool, self._addresses.jobs)
        job_id = self._addresses.job_id(address)
        return address in fixed or (
            job_id is not None and await self._desk.may_see_job(caller.jid, job_id)
        )

    async def info(self, iq: Iq) -> Element:
        """The answer to `disco#info`.

        Raises:
            NotFound: there is no such node.
        """
        node = iq.node
        features: tuple[str, ...] = _FEATURES
        if node in COMMANDS_AT.get(self._kind(iq.to), ()):
            identity = element("identity", category="automation", type="command-node", name=node)
            features = (COMMANDS, "jabber:x:data")
        elif node == COMMANDS:
            identity = element("identity", category="automation", type="command-list")
            features = (DISCO_INFO, DISCO_ITEMS)
        elif node and node not in self._nodes(iq.to):
            raise NotFound(f"{iq.to} has no node {node[:100]}")
        else:
            job_id = self._addresses.job_id(iq.to)
            name = self._name(iq.to)
            if job_id is not None:
                name = f"job {job_id}: {await self._desk.status_of(job_id)}"
            identity = element("identity", category="component", type="generic", name=name)
        found = [element("feature", var=each) for each in features]
        return element("query", identity, *found, xmlns=DISCO_INFO, node=node)

    def items(self, caller: Caller, iq: Iq) -> Element:
        """The answer to `disco#items`: at most 100 of them; more are asked for as XEP-0059 says.

        Raises:
            NotFound: there is no such node.
        """
        node, address = iq.node, iq.to
        kind = self._kind(address)
        if node == COMMANDS:
            found = {name: (address, name, name) for name in COMMANDS_AT.get(kind, ())}
        elif kind == "pool" and node in _WORKER_NODES:
            found = self._workers(_WORKER_NODES[node])
        elif kind == "jobs" and (not node or node in _JOB_NODES):
            found = self._jobs(caller, _JOB_NODES.get(node))
        elif node:
            raise NotFound(f"{address} has no node {node[:100]}")
        elif kind == "pool":
            found = {name: (address, f"workers that are {name}", name) for name in _WORKER_NODES}
        elif kind == "domain":
            fixed = (self._addresses.jobs, self._addresses.pool)
            found = {each: (each, self._name(each), "") for each in fixed}
        else:
            found = {}
        items, page = _page(found, iq)
        shown = [
            element("item", jid=jid, name=name, node=node)
            for jid, name, node in (found[key] for key in items)
        ]
        return element("query", *shown, *page, xmlns=DISCO_ITEMS, node=node)

    def card(self, iq: Iq) -> Element:
        """The answer to `vcard-temp` (XEP-0054), which clients keep: nothing in it changes."""
        job_id = self._addresses.job_id(iq.to)
        return element(
            "vCard",
            element("FN", f"Kestrel job {job_id}" if job_id is not None else self._name(iq.to)),
            element("DESC", f"Kestrel {own_version()}, the pool {self._addresses.domain}"),
            xmlns=VCARD,
        )

    def _kind(self, address: str) -> str:
        if address == self._addresses.domain:
            return "domain"
        return address.partition("@")[0]

    def _nodes(self, address: str) -> Iterable[str]:
        nodes = {"pool": tuple(_WORKER_NODES), "jobs": tuple(_JOB_NODES)}
        return nodes.get(self._kind(address), ())

    def _name(self, address: str) -> str:
        words = {"pool": "Kestrel workers", "jobs": "Kestrel jobs"}
        return words.get(self._kind(address), "Kestrel pool")

    def _workers(self, states: tuple[str, ...]) -> dict[str, tuple[str, str, str]]:
        """The workers by address, so that the sessions of one account stand together."""
        moment = self._service.now()

        def item(worker: Worker, state: str) -> tuple[str, str, str]:
            return worker.jid, f"{state}, {plural(worker.running, 'task')}", ""

        return {
            jid: item(worker, state)
            for jid, worker in self._service.pool.workers.items()
            if (state := worker_state(worker, moment)) in states
        }

    def _jobs(self, caller: Caller, runs: bool | None) -> dict[str, tuple[str, str, str]]:
        return {
            f"{job.id:018d}": (
                self._addresses.job(job.id),
                f"Job {job.id}: {job.spec.name or job.owner}",
                "",
            )
            for job in self._service.pool.jobs
            if job.owner == caller.user and (runs is None or runs == bool(job.running))
        }


def _page(found: Iterable[str], iq: Iq) -> tuple[list[str], list[Element]]:
    """Returns the keys of a page, and what tells of it if there is more or a page was asked for."""
    asked = iq.payload.find(f"{{{_PAGES}}}set")
    after, most = "", MOST_ITEMS
    if asked is not None:
        after = asked.findtext(f"{{{_PAGES}}}after") or ""
        wanted = asked.findtext(f"{{{_PAGES}}}max") or ""
        if wanted.isdecimal():
            most = min(MOST_ITEMS, int(wanted[:9]))
    keys = list(found)
    page = heapq.nsmallest(most, (key for key in keys if key > after))
    if asked is None and len(page) == len(keys):
        return page, []
    parts = []
    if page:
        before = sum(1 for key in keys if key < page[0])
        parts = [element("first", page[0], index=str(before)), element("last", page[-1])]
    return page, [element("set", *parts, element("count", str(len(keys))), xmlns=_PAGES)]
