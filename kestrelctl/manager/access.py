"""Who may do what: decided by the address that the server vouches for."""

from __future__ import annotations

from kestrelctl.manager.options import ManagerOptions


def bare(jid: str) -> str:
    """An address without its resource."""
    return jid.partition("/")[0]


def host(jid: str) -> str:
    """The domain of an address."""
    return bare(jid).rpartition("@")[2]


class Access:
    """The rules of one pool."""

    def __init__(self, options: ManagerOptions) -> None:
        self._worker_hosts = frozenset(options.worker_hosts or (f"workers.{options.domain}",))
        self._user_hosts = frozenset(options.user_hosts or (f"users.{options.domain}",))
        self._admins = frozenset(options.admins)

    def may_work(self, jid: str) -> bool:
        """Whether that address may join as a worker."""
        return host(jid) in self._worker_hosts

    def may_submit(self, jid: str) -> bool:
        """Whether that address may ask the pool anything."""
        return host(jid) in self._user_hosts

    def is_admin(self, jid: str) -> bool:
        """Whether that address may touch other people's jobs, and workers."""
        return bare(jid) in self._admins
