"""The flock as far as it is durable: a pool's rules, and the pools by which it finds the flock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kestrelctl.core import events as ev
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.records import FlockPeer, FlockPeerGone, FlockRecord, FlockRuleGone
from kestrelctl.flock.rules.policy import DEFAULT_ISOLATION, Policy
from kestrelctl.manager.requests.pending_answers import PendingAnswers
from kestrelctl.manager.service import Service

#: What is remembered of a pool is written again when it was heard of so much later.
FRESH_SECONDS = 3600.0


class KeptFlock:
    """Reads and changes it.

    Args:
        pending: the manager's own.
        default_isolation: of tasks of other pools, where no rule says so.

    Attributes:
        policy: what the rules that are in force come to; another one after each change.
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
        self.policy = self._read_policy()

    def rules(self) -> list[FlockRule]:
        """The rules in force, by name."""
        return self._service.pool.flock_rules

    def peers(self) -> list[FlockPeer]:
        """Pools to join through, those first that an admin has named, then those heard of last."""
        known = self._service.pool.flock_peers
        return sorted(known, key=lambda peer: (not peer.through, -peer.heard_at, peer.pool))

    async def put_rule(self, rule: FlockRule, by: str) -> None:
        """Puts a rule in force; returns when that is durable.

        Raises:
            UsageError: there are too many.
            StoreFull: nothing can be stored now.
        """
        await self._change([rule], by)

    async def drop_rule(self, name: str, by: str) -> None:
        """Takes a rule out of force; returns when that is durable.

        Raises:
            NotFound: there is none of that name.
            StoreFull: nothing can be stored now.
        """
        await self._change([FlockRuleGone(name)], by)

    async def join_through(self, domain: str, by: str) -> None:
        """Remembers a pool as one to join through; returns when that is durable.

        Raises:
            UsageError: there are too many.
            StoreFull: nothing can be stored now.
        """
        now = self._service.now()
        await self._change([FlockPeer(pool=domain, through=True, heard_at=now)], by)

    async def forget(self, domain: str, by: str) -> None:
        """Remembers a pool no more; returns when that is durable.

        Raises:
            StoreFull: nothing can be stored now.
        """
        await self._change([FlockPeerGone(domain)], by)

    async def forget_all(self, by: str) -> None:
        """Remembers no pool any more; returns when that is durable.

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
        self.policy = self._read_policy()

    def _read_policy(self) -> Policy:
        return Policy(self.rules(), self._default_isolation)
