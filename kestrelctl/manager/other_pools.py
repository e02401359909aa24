"""The port through which a manager asks its flock, and the one of a manager that is in none.

The service behind it is `kestrelctl.flock.service`.
"""

from __future__ import annotations

from typing import Protocol

from kestrelctl.core.model.worker.ad import WorkerAd


class OtherPools(Protocol):
    """The other pools, as a manager asks them."""

    def on_online(self) -> None:
        """Notes that the manager has a session with the server."""

    def on_offline(self) -> None:
        """Notes that the manager has no session."""

    def is_ours(self, address: str) -> bool:
        """Whether the flock answers for an address of the pool's domain."""
        ...

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        """Takes in a message to an address for which the flock answers."""

    def on_bounce(self, sender: str, condition: str) -> None:
        """Notes that a message to another pool could not be delivered."""

    def may_work(self, jid: str) -> bool:
        """Whether another pool may offer itself as a worker, because it was asked to."""
        ...

    def admitted(self, jid: str, ad: WorkerAd) -> WorkerAd:
        """Limits what such a worker offers to what counts of it."""
        ...


class NoOtherPools:
    """The port of a manager that is in no flock."""

    def on_online(self) -> None:
        """Does nothing: nobody is to be told."""

    def on_offline(self) -> None:
        """Does nothing: nobody is to be told."""

    def is_ours(self, address: str) -> bool:
        """Returns False: no address is."""
        return False

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        """Does nothing: there is no such address."""

    def on_bounce(self, sender: str, condition: str) -> None:
        """Does nothing: it was no message of the flock's."""

    def may_work(self, jid: str) -> bool:
        """Returns False: nobody may."""
        return False

    def admitted(self, jid: str, ad: WorkerAd) -> WorkerAd:
        """Returns the ad as it is."""
        return ad


NO_OTHER_POOLS = NoOtherPools()
