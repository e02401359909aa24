"""Lets a pool of `up` join others of this machine: its domain, its certificate and its place."""

from __future__ import annotations

from pathlib import Path

from kestrelctl.core.model.names import problem_with_domain
from kestrelctl.core.model.neighbour import RECLAIM_MINUTES
from kestrelctl.errors import UsageError
from kestrelctl.local.flock_addresses import read_address
from kestrelctl.local.flock_authority import FlockAuthority
from kestrelctl.local.other_servers import domain_of
from kestrelctl.local.pool_state import pool_directory, pools_directory, read_state
from kestrelctl.xmpp.federation import Federation, FlockMembership
from kestrelctl.xmpp.prosody import LOCAL_DOMAIN, LOOPBACK, free_ports


def flock_directory() -> Path:
    """The directory of the authority of this user's pools and of their servers' addresses."""
    return pools_directory().parent / "flock"


def addresses_of(directory: Path) -> Path:
    """The directory of addresses that all pools of a flock read.

    Args:
        directory: of the flock.
    """
    return directory / "addresses"


def own_addresses_of(directory: Path) -> Path:
    """The directory of addresses that one pool reads first: an entry there sends it another way.

    Args:
        directory: of the pool.
    """
    return directory / "flock-addresses"


def flock_domain(name: str) -> str:
    """The domain of a pool of this machine that is in a flock.

    Args:
        name: of the pool.

    Raises:
        UsageError: the name cannot be part of a domain.
    """
    domain = f"{name.lower()}.{LOCAL_DOMAIN}"
    if problem_with_domain(domain) is not None:
        raise UsageError(
            f"{name!r} cannot be part of a domain",
            cause=f"in a flock the pool NAME is NAME.{LOCAL_DOMAIN}",
            hint="use letters, digits, - and _, or say --domain",
        )
    return domain


def check_domain(name: str, domain: str) -> None:
    """Passes if a pool has a domain by which others can tell it from themselves.

    Raises:
        UsageError: it has that of each pool which is in no flock.
    """
    if domain == LOCAL_DOMAIN:
        raise UsageError(
            f"the pool {name} cannot be in a flock",
            cause=f"it is {LOCAL_DOMAIN}, as others are, and stays so: its jobs belong to accounts "
            "of that domain",
            hint="`kestrelctl up --name OTHER --flock …` begins a pool beside it",
        )


def domain_to_join(flock: str, name: str, domain: str) -> str:
    """The domain of the pool through which another one joins its flock.

    Args:
        flock: name of the pool to join through; `name` for the first of a flock.
        name: of the pool that joins.
        domain: of that pool.

    Raises:
        UsageError: no such pool runs, or it is in no flock.
    """
    if flock == name:
        return domain
    directory = pool_directory(flock)
    state = read_state(directory)
    if state is None:
        first = "OTHER" if domain_of(directory, "", "") == LOCAL_DOMAIN else flock
        raise UsageError(
            f"the pool {flock} does not run, so nobody can join through it",
            cause=f"nor could it when it runs: it is {LOCAL_DOMAIN}, and stays so"
            if first != flock
            else None,
            hint=f"`kestrelctl up --name {first} --flock {first}` starts the first of a flock",
        )
    if not (addresses_of(flock_directory()) / state.domain).exists():
        raise UsageError(
            f"the pool {flock} is in no flock",
            cause=f"it is {LOCAL_DOMAIN}, and stays so"
            if state.domain == LOCAL_DOMAIN
            else "it was started without --flock",
            hint="`kestrelctl up --name OTHER --flock OTHER` starts the first of a flock"
            if state.domain == LOCAL_DOMAIN
            else f"`kestrelctl down --name {flock}`, and `up --name {flock} --flock {flock}`",
        )
    return state.domain


def membership(
    directory: Path,
    pool: Path,
    domain: str,
    through: str,
    minute_seconds: float = 60.0,
    *,
    reclaim_minutes: float = RECLAIM_MINUTES,
    fixed: tuple[str, ...] = (),
) -> Federation:
    """Returns what a pool needs to be in a flock; makes its certificate if it has none.

    Args:
        directory: of the flock.
        pool: the directory of the pool, which exists.
        domain: of the pool.
        through: domain of the pool to join through; `domain` for the first of a flock.
        minute_seconds: unit of the intervals in which pools tell each other things.
        reclaim_minutes: for how many of these units tasks of others may go on while own ones wait.
        fixed: domains of all pools of the flock, if they do not find each other.

    Raises:
        MissingTool: there is no `openssl`.
        KestrelError: no certificate could be made.
    """
    authority = FlockAuthority(directory)
    certificate, key = authority.issue(pool, domain)
    return Federation(
        certificate=str(certificate),
        key=str(key),
        interfaces=(LOOPBACK,),
        port=free_ports(1)[0],
        flock=FlockMembership(
            authorities=str(authority.file),
            address_directories=(str(own_addresses_of(pool)), str(addresses_of(directory))),
            through=through,
            minute_seconds=minute_seconds,
            reclaim_minutes=reclaim_minutes,
            fixed=fixed,
        ),
    )


def server_address(directory: Path, name: str) -> str:
    """Reads the address at which the server of a pool listens for those of others: ADDRESS:PORT.

    Args:
        directory: of the flock.
        name: of the pool.

    Raises:
        NotFound: it does not run.
    """
    return read_address(addresses_of(directory), flock_domain(name))
