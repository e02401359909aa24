"""Signs of life of workers with a profile: silent workers are asked for one (XEP-0199).

Every XMPP library answers an IQ, if only to say that it does not know it (RFC 6120, 8.4). So such
a worker has the same lease as any other, and need not think of it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from kestrelctl.core import events as ev
from kestrelctl.errors import KestrelError, TimedOut, Unreachable
from kestrelctl.manager.service import Service

PING = "<ping xmlns='urn:xmpp:ping'/>"
#: The time between two looks for silent workers.
LOOK_SECONDS = 1.0
#: A lost worker is asked at one look of so many: it has no reason to say anything by itself.
LOOKS_FOR_LOST = 10
#: The part of the longest allowed silence after which a worker is asked.
SILENT_PART = 0.5

Ask = Callable[..., Awaitable[Any]]


def silent(service: Service) -> list[str]:
    """The workers that are to be asked for a sign of life now."""
    moment, workers = service.now(), service.pool.workers
    return [
        jid
        for jid in service.profiles
        if (worker := workers.get(jid)) is not None
        and worker.online
        and moment - worker.heard_at >= SILENT_PART * worker.heartbeat_seconds
    ]


def lost(service: Service) -> list[str]:
    """The workers that the pool has lost, though their sessions may live."""
    return [jid for jid in service.profiles if not _is_online(service, jid)]


def _is_online(service: Service, jid: str) -> bool:
    worker = service.pool.workers.get(jid)
    return worker is not None and worker.online


async def ping(service: Service, ask: Ask, jid: str) -> None:
    """Asks a worker for a sign of life, and renews its lease if there is one.

    Args:
        ask: sends an IQ and returns its answer, as `xmpp_session.XmppSession.ask_iq`.
    """
    try:
        await ask(PING, jid, f"pool@{service.domain}", kind="get", timeout_seconds=LOOK_SECONDS)
    except (TimedOut, Unreachable):
        return
    except KestrelError:
        # Refused: by its library, or by the server because nobody is there, and the two look alike.
        # The server would have said that one that has shown itself is gone.
        if not service.profiles.is_shown(jid):
            if not _is_online(service, jid):
                service.profiles.forget(jid)
            return
    if jid in service.profiles:
        service.handle(ev.Heard(at=service.now(), cause=jid, worker=jid))


async def keep_pinging(service: Service, ask: Ask) -> None:
    """Pings all silent workers, and now and then all lost ones, for ever."""
    for look in itertools.count(1):
        await asyncio.sleep(LOOK_SECONDS)
        asked = silent(service)
        if look % LOOKS_FOR_LOST == 0:
            asked += lost(service)
        await asyncio.gather(*(ping(service, ask, jid) for jid in asked))
