"""What a manager asks of the flock it is in: a port, and a manager that is in none.

The service behind it is `kestrelctl.flock.service`.
"""

from __future__ import annotations

from typing import Protocol

from kestrelctl.core.model.worker.ad import WorkerAd


class OtherPools(Protocol):
    """The other pools."""

    def on_online(self) -> None:
        """The manager has a session with the server."""

    def on_offline(self) -> None:
        """It has none."""

    def is_ours(self, address: str) -> bool:
        """Whether the flock answers for an address of the pool's domain."""
        ...

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        """A message to an address of which that is so."""

    def on_bounce(self, sender: str, condition: str) -> None:
        """A message to another pool could not be delivered."""

    def may_work(self, jid: str) -> bool:
        """Whether another pool may offer itself as a worker, because it was asked to."""
        ...

    def admitted(self, jid: str, ad: WorkerAd) -> WorkerAd:
        """What counts of what such a worker offers."""
        ...


class NoOtherPools:
    """Of a manager that is in no flock."""

    def on_online(self) -> None:
        """Nobody is to be told."""

    def on_offline(self) -> None:
        """Nobody is to be told."""

    def is_ours(self, address: str) -> bool:
        """No address is."""
        return False

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        """There is no such address."""

    def on_bounce(self, sender: str, condition: str) -> None:
        """It was none of the flock's."""

    def may_work(self, jid: str) -> bool:
        """Nobody may."""
        return False

    def admitted(self, jid: str, ad: WorkerAd) -> WorkerAd:
        """As it is."""
        return ad


NO_OTHER_POOLS = NoOtherPools()
