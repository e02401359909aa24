"""The common parts of the `kestrelctl fleet` commands: which hosts, and the verdict on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from kestrelctl.cli.command import Invocation
from kestrelctl.cli.show.screen import Mode
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import HostsFailed, KestrelError, Unreachable, Untrusted
from kestrelctl.grammar.click_types import FilePath, WholeNumber
from kestrelctl.missing_package import missing_package

if TYPE_CHECKING:
    from kestrelctl.fleet.fan_out import HostOutcome
    from kestrelctl.fleet.host import Host
    from kestrelctl.fleet.shell import Connect, Shell

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_NAMED = 5


def host_options(command: F) -> F:
    """Adds the options that choose hosts."""
    options = (
        click.option(
            "-i",
            "--inventory",
            type=FilePath(),
            metavar="PATH",
            help="Inventory of Ansible.  [default: the one that Ansible would use here]",
        ),
        click.option(
            "--limit",
            metavar="PATTERN",
            help="Choose hosts and groups, as for ansible: 'workers,!w3'.  [default: all]",
        ),
        click.option(
            "--forks",
            type=WholeNumber(1),
            default=20,
            show_default=True,
            metavar="N",
            help="Number of hosts at the same time.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


class Fleet:
    """The chosen hosts, and which of them have failed so far."""

    def __init__(self, hosts: Sequence[Host], connect: Connect, forks: int) -> None:
        self.hosts = hosts
        self.connect = connect
        self.forks = forks
        self.failed: dict[str, KestrelError] = {}

    async def each(
        self,
        work: Callable[[Shell], T],
        *,
        hosts: Sequence[Host] | None = None,
        at_once: int | None = None,
        trouble: Callable[[T], KestrelError | None] = lambda _: None,
    ) -> AsyncIterator[HostOutcome[T]]:
        """Does the work on each of the hosts, and notes which fail.

        Args:
            trouble: returns what is wrong although the work was done.
        """
        from kestrelctl.fleet.fan_out import each

        hosts = self.hosts if hosts is None else hosts
        async for outcome in each(hosts, self.connect, work, at_once=at_once or self.forks):
            error = outcome.error
            if outcome.value is not None:
                error = trouble(outcome.value)
            self.note(outcome.host, error)
            yield outcome

    def note(self, host: str, error: KestrelError | None) -> None:
        """Remembers that a host failed, if it did."""
        if error is not None:
            self.failed[host] = error

    def judge(self) -> None:
        """Raises an error, which ends the command, if a host has failed.

        Raises:
            Unreachable: hosts could not be reached, whatever else failed.
            HostsFailed: all hosts were reached, but something failed on some.
        """
        if not self.failed:
            return
        lost = [host for host, error in self.failed.items() if was_not_reached(error)]
        names = sorted(lost or self.failed)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        first = self.failed[names[0]]
        kind, what = (Unreachable, "could not be reached") if lost else (HostsFailed, "failed")
        raise kind(
            f"{len(names)} of {plural(len(self.hosts), 'host')} {what}: "
            f"{', '.join(names[:_NAMED])}{more}",
            cause=": ".join(filter(None, (first.message, first.cause))),
            hint=first.hint,
        )


def choose(invocation: Invocation, inventory: Path | None, limit: str | None, forks: int) -> Fleet:
    """Returns the hosts that the options of a command line choose.

    Raises:
        MissingTool: Fabric or Ansible is not installed.
        UsageError: there are no such hosts.
    """
    from kestrelctl.fleet.inventory import read_inventory

    connect = _connect()
    hosts = read_inventory(inventory, limit)
    for option in sorted({option for host in hosts for option in host.ignored}):
        invocation.screen.warn(f"the SSH option {option!r} of the inventory is not followed")
    return Fleet(hosts, connect, forks)


def _connect() -> Connect:
    try:
        from kestrelctl.fleet.ssh import connect
    except ImportError as error:
        raise missing_package(
            "Fabric is not installed", "fabric", "ansible-core", cause=str(error)
        ) from None
    return connect


async def in_order(
    outcomes: AsyncIterator[HostOutcome[T]], mode: Mode
) -> AsyncIterator[Sequence[HostOutcome[T]]]:
    """Yields outcomes sorted by name, or each as soon as it is known if order does not matter."""
    if mode is Mode.JSONL:
        async for outcome in outcomes:
            yield [outcome]
    else:
        yield sorted([outcome async for outcome in outcomes], key=lambda outcome: outcome.host)


def data_of(outcome: HostOutcome[Any], kind: type[msgspec.Struct]) -> dict[str, object]:
    """Describes an outcome for programs: the host, its error, each field of its value, or null."""
    fields = {name: getattr(outcome.value, name, None) for name in kind.__struct_fields__}
    return {"host": outcome.host, "error": error_data(outcome.error), **fields}


def error_data(error: KestrelError | None) -> dict[str, str | None] | None:
    """Describes an error for programs."""
    if error is None:
        return None
    known = {"message": error.message, "cause": error.cause, "hint": error.hint}
    return {"code": error.code, **known}


def reason(error: KestrelError) -> str:
    """Says what is wrong with a host, in one line of a table."""
    return ": ".join(filter(None, (error.message, error.cause)))


def state_of(error: KestrelError | None) -> str:
    """Returns `ok`, `unreachable` or `failed`."""
    if error is None:
        return "ok"
    return "unreachable" if was_not_reached(error) else "failed"


def was_not_reached(error: KestrelError) -> bool:
    """Whether nobody could log in at a host; one without the known key may be another machine."""
    return isinstance(error, Unreachable | Untrusted)
