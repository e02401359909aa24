"""The flock as far as it is durable: a pool's rules, and the pools by which it finds the flock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kestrelctl.core import events as ev
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.records import FlockPeer, FlockPeerGone, FlockRecord
from kestrelctl.flock.rules.policy import DEFAULT_ISOLATION, Policy
from kestrelctl.manager.requests.pending_answers import PendingAnswers
from kestrelctl.manager.service import Service

#: The record of a pool is written again when the pool was heard of so much later.
FRESH_SECONDS = 3600.0


class KeptFlock:
    """Reads and changes what is durable of the flock.

    Args:
        pending: the manager's own.
        default_isolation: for tasks of other pools, where no rule names one.
    """

    def __init__(
        self,
        service: Service,
        pending: PendingAnswers,
        default_isolation: str = DEFAULT_ISOLATION,
    ) -> None:
        self._service = service
        self._pending = pending
        self._default_isolation = default_isolation

    def rules(self) -> list[FlockRule]:
        """The rules in force, by name."""
        return self._service.pool.settings(FlockRule)

    @property
    def policy(self) -> Policy:
        """The policy of the rules in force."""
        return Policy(self.rules(), self._default_isolation)

    def peers(self) -> list[FlockPeer]:
        """Pools to join through, those first that an admin has named, then those heard of last."""
        known = self._service.pool.flock_peers
        return sorted(known, key=lambda peer: (not peer.through, -peer.heard_at, peer.pool))

    async def join_through(self, domain: str, by: str) -> None:
        """Remembers a pool as one to join through; returns when that is durable.

        Raises:
            UsageError: there are too many.
            StoreFull: nothing can be stored now.
        """
        now = self._service.now()
        await self._change([FlockPeer(pool=domain, through=True, heard_at=now)], by)

    async def forget(self, domain: str, by: str) -> None:
        """Forgets a pool; returns when that is durable.

        Raises:
            StoreFull: nothing can be stored now.
        """
        await self._change([FlockPeerGone(domain)], by)

    async def forget_all(self, by: str) -> None:
        """Forgets all pools; returns when that is durable.

        Raises:
            StoreFull: nothing can be stored now.
        """
        await self._change([FlockPeerGone(peer.pool) for peer in self.peers()], by)

    def remember(self, heard: Mapping[str, float]) -> None:
        """Remembers pools as ones by which to find the flock, with the next commit.

        Args:
            heard: when each was last heard of. Little news is not written.
        """
        known = {peer.pool: peer for peer in self._service.pool.flock_peers}
        records: list[FlockRecord] = []
        for pool, heard_at in heard.items():
            peer = known.get(pool)
            if peer is None:
                records.append(FlockPeer(pool=pool, heard_at=heard_at))
            elif heard_at >= peer.heard_at + FRESH_SECONDS:
                records.append(FlockPeer(pool=pool, through=peer.through, heard_at=heard_at))
        if records:
            self._service.handle(ev.ChangeFlock(at=self._service.now(), records=tuple(records)))

    async def _change(self, records: Iterable[FlockRecord], by: str) -> None:
        await self._pending.answer_to(
            lambda token: ev.ChangeFlock(
                at=self._service.now(), cause=by, request=token, records=tuple(records)
            )
        )
