"""The one port through which the command line reaches a pool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from kestrelctl.access.context import Context, find_context, read_password
from kestrelctl.errors import KestrelError, Unreachable, Untrusted

if TYPE_CHECKING:
    from kestrelctl.protocol.channels import TaskWrote
    from kestrelctl.protocol.job_answers import Ended
    from kestrelctl.protocol.request import Reply
    from kestrelctl.protocol.requests import AnyRequest
    from kestrelctl.protocol.upload_slots import Slot

T = TypeVar("T")


class Connection(Protocol):
    """A session with a pool."""

    async def ask(
        self, request: AnyRequest, timeout_seconds: float = 30.0, *, waits: bool = True
    ) -> Reply:
        """Returns the answer to a request, which needs no `id`: the connection gives it one.

        Args:
            waits: whether it waits for a manager or server that is away: it may only be restarting.

        Raises:
            KestrelError: the pool refused it; the class belongs to the code of `Failed`.
            Unreachable: the manager or the server is away.
            TimedOut: no answer came in time.
        """

    def pushed(self) -> AsyncIterator[Ended]:
        """Yields the ends of watched jobs as they come; the iterator itself does not end."""

    def task_frames(self) -> AsyncIterator[TaskWrote]:
        """Yields what tasks write to their channels, of jobs whose channels this session opened."""

    async def request_slot(self, size_bytes: int, filename: str) -> Slot:
        """Returns a place in the pool's file share.

        Raises:
            KestrelError: this account gets none, or the pool has no file share.
        """

    async def close(self) -> None:
        """Ends the session."""


async def ask(
    connection: Connection,
    request: AnyRequest,
    kind: type[T],
    timeout_seconds: float = 30.0,
    *,
    waits: bool = True,
) -> T:
    """Returns the answer to a request, which is of one kind unless the pool has another version.

    Args:
        waits: see `Connection.ask`.

    Raises:
        KestrelError: as `Connection.ask`, or the answer is of another kind.
    """
    answer = await connection.ask(request, timeout_seconds, waits=waits)
    if not isinstance(answer, kind):
        raise KestrelError(
            "the pool answered something else",
            cause=f"{kind.__name__} was expected, {type(answer).__name__} came",
            hint="compare `kestrelctl --version` with `kestrelctl pool status`",
        )
    return answer


@asynccontextmanager
async def open_pool(wanted: str, *, as_admin: bool = False) -> AsyncIterator[Connection]:
    """Opens a connection to the pool that is meant (see `find_context`), for the time of a `with`.

    Args:
        wanted: the name of the pool; empty for the one that this machine talks to by default.
        as_admin: whether to use the admin's account, if there is one besides the user's.

    Raises:
        UsageError: it is not clear which pool, or how to get in.
        Unreachable: there is none, or it does not answer.
        NotAllowed: the server refused the login.
        Untrusted: the server cannot prove that it is the one that is meant.
    """
    async with connect(find_context(wanted), as_admin=as_admin) as connection:
        yield connection


@asynccontextmanager
async def open_briefly(wanted: str, *, as_admin: bool = False) -> AsyncIterator[Connection]:
    """Opens a connection that blocks, for a command of a moment (see `at_once`).

    Raises:
        UsageError, NotAllowed: as `open_pool`.
        TakesLonger: it does not succeed at once.
    """
    from kestrelctl.xmpp.brief_user import connect_briefly
    from kestrelctl.xmpp.login import account_login

    context = find_context(wanted)
    jid, password = _credentials(context, as_admin=as_admin)
    login = account_login(jid, password, context.host, tls=context.tls, ca_file=context.ca_file)
    async with connect_briefly(context.pool, login, context.host, context.port) as connection:
        yield connection


@asynccontextmanager
async def connect(context: Context, *, as_admin: bool = False) -> AsyncIterator[Connection]:
    """Opens a connection to the pool of a context, for the time of a `with`."""
    import logging

    from kestrelctl.xmpp.user import connect_user

    jid, password = _credentials(context, as_admin=as_admin)
    log = logging.getLogger(__name__)
    log.debug("pool %s at %s:%d, as %s", context.pool, context.host, context.port, jid)
    try:
        async with connect_user(
            jid,
            password,
            context.pool,
            context.host,
            context.port,
            tls=context.tls,
            ca_file=context.ca_file,
        ) as connection:
            yield connection
    except Untrusted as error:
        hints = [hint for hint in (error.hint, context.hint) if hint]
        raise Untrusted(error.message, cause=error.cause, hint="; ".join(hints)) from error
    except Unreachable as error:
        raise Unreachable(
            error.message, cause=error.cause, hint=error.hint or context.hint
        ) from error


def _credentials(context: Context, *, as_admin: bool) -> tuple[str, str]:
    """Returns the address and the password of the account that is meant."""
    account = (as_admin and context.admin) or context.user
    return account.jid, read_password(account)
