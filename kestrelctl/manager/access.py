"""Decides who may do what, by the address that the server vouches for."""

from __future__ import annotations

from kestrelctl.core.members.enrollment import is_temporary
from kestrelctl.errors import UsageError
from kestrelctl.manager.options import ManagerOptions


def bare(jid: str) -> str:
    """An address without its resource."""
    return jid.partition("/")[0]


def host(jid: str) -> str:
    """The domain of an address."""
    return bare(jid).rpartition("@")[2]


class Access:
    """The rules of one pool.

    Raises:
        UsageError: accounts of a domain would be workers and users at once.
    """

    def __init__(self, options: ManagerOptions) -> None:
        #: The domains of workers' accounts; new accounts are at the first.
        self.worker_hosts = options.worker_hosts or (f"workers.{options.domain}",)
        self._user_hosts = frozenset(options.user_hosts or (f"users.{options.domain}",))
        self._users = frozenset(options.users)
        self._admins = frozenset(options.admins)
        #: Whether users see each other's jobs whole.
        self.share_jobs = options.share_jobs
        hosts = {*self._user_hosts, *map(host, self._users)}
        both = sorted(hosts.intersection(self.worker_hosts))
        if both:
            raise UsageError(
                f"accounts of {both[0]} would be workers and users at once",
                cause="whoever has a worker's password could submit jobs",
                hint="give workers and users a domain each: --worker-host, --user-host, --user",
            )

    def may_work(self, jid: str) -> bool:
        """Whether that address may be a worker."""
        return host(jid) in self.worker_hosts and not self.may_join(jid)

    def may_join(self, jid: str) -> bool:
        """Whether that address may ask for an account as a worker, and nothing else."""
        return host(jid) in self.worker_hosts and is_temporary(jid)

    def may_submit(self, jid: str) -> bool:
        """Whether that address may ask the pool anything."""
        return host(jid) in self._user_hosts or bare(jid) in self._users

    def is_admin(self, jid: str) -> bool:
        """Whether that address may touch other people's jobs, and workers."""
        return bare(jid) in self._admins
